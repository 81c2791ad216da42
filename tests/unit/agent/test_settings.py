"""The agent's settings: where each value comes from, and what an operator reads when one is wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rackpower_agent.main import FINE, USAGE, main
from rackpower_agent.settings import AgentSettings
from rackpower_common.settings import load_settings
from support.daemon_settings import forget_variables, mistakes_in
from support.golden import GOLDEN, check_golden

PREFIX = "RACKPOWER_AGENT_"

BROKEN: dict[str, bytes] = {
    "key-unknown": b"devices: {sim: {}}\nmetrix: 127.0.0.1:9830\n",
    "key-duplicate": b"devices: {sim: {}}\nnode: a\nnode: b\n",
    "key-nested-unknown": b"devices: {sim: {}}\ntls: {ca: a, cert: b, key: c, crl: d}\n",
    "tls-incomplete": b"devices: {sim: {}}\ntls: {ca: a}\n",
    "devices-missing": b"node: gpu-01\n",
    "devices-none": b"devices: {}\n",
    "plain-beyond-this-machine": b"devices: {sim: {}}\ncontrollers: [10.0.0.1:7410]\n",
    "address-without-port": b"devices: {sim: {}}\ncontrollers: [127.0.0.1]\n",
    "address-not-a-number": b"devices: {sim: {}}\nmetrics: .nan\n",
    "metrics-on-a-socket": b"devices: {sim: {}}\nmetrics: unix:/run/metrics.sock\n",
    "two-meters": b"devices: {sim: {}}\nmeter: {ipmi: {}, hwmon: {}}\n",
    "node-empty": b"devices: {sim: {}}\nnode: ''\n",
    "level-unknown": b"devices: {sim: {}}\nlog_level: loud\n",
    "not-utf-8": b"devices: {sim: {}}\nnode: M\xfcnchen\n",
    "not-a-mapping": b"- devices\n",
    "comments-only": b"# nothing yet\n",
    "tab": b"devices:\n\tsim: {}\n",
}


mistakes = partial(mistakes_in, AgentSettings)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without any variable of ours."""
    forget_variables(monkeypatch, PREFIX)


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_in_the_file_is_told_with_its_place(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake has line and column, and says what to do; the words are in golden files."""
    monkeypatch.chdir(tmp_path)
    Path("agent.yaml").write_bytes(BROKEN[name])
    check_golden(GOLDEN / "agent" / "settings" / f"{name}.txt", mistakes(Path("agent.yaml")))


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest to the command wins, for each setting by itself."""
    path = tmp_path / "agent.yaml"
    path.write_text("devices: {sim: {path: x}}\nnode: file\nstate_dir: /file\nlog_level: error\n")
    monkeypatch.setenv(f"{PREFIX}NODE", "variable")
    monkeypatch.setenv(f"{PREFIX}STATE_DIR", "/variable")
    settings = load_settings(AgentSettings, path, {"node": "flag", "state_dir": None})
    assert (settings.node, settings.state_dir, settings.log_level) == ("flag", Path("/variable"), "error")
    assert settings.devices == {"sim": {"path": "x"}}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CONTROLLERS", "127.0.0.1:1", f'{PREFIX}CONTROLLERS: error: it is not JSON (write ["one", "two"] for a list'),
        ("LOG_LEVEL", "loud", f"{PREFIX}LOG_LEVEL: error: `log_level`: input should be 'debug'"),
        ("LOG_LEVLE", "info", f"{PREFIX}LOG_LEVLE: error: `LOG_LEVLE` is not a setting (did you mean `LOG_LEVEL`?)"),
        ("TLS__CA", "/x", f"{PREFIX}TLS: error: `tls.cert` is missing"),
        ("CONTROLLERS", '["x"]', f"{PREFIX}CONTROLLERS: error: `controllers`: 'x' is not an address"),
    ],
)
def test_a_mistake_in_a_variable_names_it(name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a misspelt variable, which would else be silent; nothing ends in a traceback."""
    monkeypatch.setenv(f"{PREFIX}{name}", value)
    assert mistakes(None, devices={"sim": {}}).startswith(words)


def test_a_mistake_in_a_flag_names_it() -> None:
    """The flag as it is written on the command line."""
    assert mistakes(None, devices={"sim": {}}, log_level="loud").startswith("--log-level: error: `log_level`: ")


def test_a_file_that_is_not_there_is_told() -> None:
    """With the way to name another."""
    assert mistakes(Path("/nowhere/agent.yaml")) == (
        "/nowhere/agent.yaml: error: cannot be read: No such file or directory (name another with --config)\n"
    )


def test_options_of_a_backend_may_be_numbers_or_left_out(tmp_path: Path) -> None:
    """`sim:` alone and `poll: 5` mean what they say; backends get text."""
    path = tmp_path / "agent.yaml"
    path.write_text("devices:\n  sim:\nmeter:\n  ipmi: {poll: 5}\n")
    settings = load_settings(AgentSettings, path, {})
    assert (settings.devices, settings.meter) == ({"sim": {}}, {"ipmi": {"poll": "5"}})


def test_exit_codes_and_words_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 for what only a person can mend, with nothing but a sentence on stderr; `--check` starts nothing."""
    config = str(tmp_path / "agent.yaml")
    Path(config).write_text("devices: {sim: {}}\nnode: gpu-01\ncontrollers: [127.0.0.1:1]\n")
    assert main(["--config", config, "--check"]) == FINE
    assert capsys.readouterr().out == "settings are fine: node gpu-01, controllers 127.0.0.1:1\n"
    assert main(["--config", config, "--devices", "nvdia", "--check"]) == USAGE
    assert capsys.readouterr().err == "rackpower-agent: error: devices: 'nvdia' is not installed (installed: sim)\n"
    Path(config).write_text("devices: {sim: {}}\n")
    assert main(["--config", config]) == USAGE
    assert capsys.readouterr().err == (
        "rackpower-agent: error: no controller is named (set controllers: [host:port])\n"
    )


@pytest.mark.parametrize("seconds", ["soon", "nan", "-1", "1e9"])
def test_a_wait_that_is_no_time_is_a_usage_error(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The words name the flag and what it takes."""
    with pytest.raises(SystemExit) as ended:
        main(["boot-cap", f"--wait={seconds}"])
    assert ended.value.code == USAGE
    assert f"{seconds!r} is not a number of seconds from 0 to 3600" in capsys.readouterr().err
