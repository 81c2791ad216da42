"""The controller's settings: where each value comes from, and what an operator reads when one is wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rackpower_common.settings import load_settings
from rackpower_controller.main import FAILED, FINE, USAGE, main
from rackpower_controller.settings import ControllerSettings
from support.daemon_settings import forget_variables, mistakes_in
from support.golden import GOLDEN, check_golden
from support.pki import authority
from support.policies import SMALL

PREFIX = "RACKPOWER_CONTROLLER_"
BROKEN: dict[str, bytes] = {
    "key-unknown": b"policy: [p.yaml]\noperator: [unix:/x]\n",
    "key-duplicate": b"policy: [p.yaml]\nstore: embedded:/a\nstore: embedded:/b\n",
    "policy-missing": b"store: embedded:/a\n",
    "policy-none": b"policy: []\n",
    "store-unknown": b"policy: [p.yaml]\nstore: mysql://db\n",
    "agents-plain-beyond-this-machine": b"policy: [p.yaml]\nagents: 0.0.0.0:7410\n",
    "operators-plain-beyond-this-machine": b"policy: [p.yaml]\noperators: [unix:/x, '10.0.0.1:7411']\n",
    "agents-empty": b"policy: [p.yaml]\nagents: ''\n",
    "address-without-port": b"policy: [p.yaml]\nagents: 127.0.0.1\n",
    "socket-relative": b"policy: [p.yaml]\noperators: unix:operator.sock\n",
    "metrics-on-a-socket": b"policy: [p.yaml]\nmetrics: unix:/run/metrics.sock\n",
    "tls-incomplete": b"policy: [p.yaml]\ntls: {ca: a, cert: b}\n",
    "level-unknown": b"policy: [p.yaml]\nlog_level: loud\n",
    "not-utf-8": b"policy: [M\xfcnchen.yaml]\n",
    "not-a-mapping": b"- policy\n",
}


mistakes = partial(mistakes_in, ControllerSettings)


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
    Path("controller.yaml").write_bytes(BROKEN[name])
    check_golden(GOLDEN / "controller" / "settings" / f"{name}.txt", mistakes(Path("controller.yaml")))


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest to the command wins, for each setting by itself; one path or address is a list of one."""
    path = tmp_path / "controller.yaml"
    path.write_text("policy: file.yaml\nstore: embedded:/file\nagents: 127.0.0.1:1\noperators: unix:/x\n")
    monkeypatch.setenv(f"{PREFIX}STORE", "embedded:/variable")
    monkeypatch.setenv(f"{PREFIX}AGENTS", "127.0.0.1:2")
    settings = load_settings(ControllerSettings, path, {"agents": "127.0.0.1:3", "store": None})
    assert (settings.agents, settings.store) == ("127.0.0.1:3", "embedded:/variable")
    assert (settings.policy, settings.operators) == ((Path("file.yaml"),), ("unix:/x",))


def test_defaults_are_of_this_machine_only() -> None:
    """Without a word nobody else reaches the controller, and the store is our own."""
    settings = load_settings(ControllerSettings, None, {"policy": ["p"]})
    assert settings.agents == "127.0.0.1:7410"
    assert settings.operators == ("unix:/run/rackpower/operator.sock",)
    assert settings.metrics == "127.0.0.1:9831"
    assert settings.store == "embedded:/var/lib/rackpower/store"


def test_beyond_this_machine_needs_mutual_tls() -> None:
    """With certificates the same addresses are taken."""
    tls = {"ca": "a", "cert": "b", "key": "c"}
    settings = load_settings(
        ControllerSettings, None, {"policy": ["p"], "agents": "0.0.0.0:7410", "operators": ["[::]:7411"], "tls": tls}
    )
    assert settings.tls is not None


def check(*arguments: str, file: Path | None = None) -> int:
    """Run `--check`."""
    config = ["--config", str(file)] if file is not None else []
    return main([*config, *arguments, "--check"])


def test_check_judges_settings_policy_and_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 with a sentence; 2 with the problem's place; nothing is started and nothing made."""
    policy, store = tmp_path / "policy.yaml", tmp_path / "store"
    policy.write_text(SMALL)
    flags = ["--policy", str(policy), "--store", f"embedded:{store}"]
    assert check(*flags) == FINE
    assert capsys.readouterr().out.endswith("are fine: 4 nodes under 1 domains\n")
    policy.write_text(SMALL.replace("60 kW", "60"))
    assert check(*flags) == USAGE
    assert f"{policy}:3:" in capsys.readouterr().err
    policy.write_text(SMALL.replace("60 kW", "15 kW"))
    assert check(*flags) == USAGE
    assert f"{policy}:3:" in capsys.readouterr().err
    policy.write_text(SMALL)
    files = authority(tmp_path / "pki").issue("server", "localhost")
    tls = ["--ca", str(files.ca), "--cert", str(files.cert), "--key", str(files.key)]
    assert check(*flags, *tls) == FINE
    assert check(*flags, *tls[:-1], str(files.cert)) == USAGE
    assert capsys.readouterr().err.startswith("rackpower-controller: error: ")
    assert not store.exists()


def test_check_judges_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A curves file that is wrong is told with its line."""
    (tmp_path / "policy.yaml").write_text(SMALL)
    curves = tmp_path / "curves.csv"
    curves.write_text("group,id,points,natural_draw_w,b,c,rmse,max_error\nx,y,7,452.5,much,1.4,0.02,0.04\n")
    flags = ["--policy", str(tmp_path / "policy.yaml"), "--curves", str(curves)]
    assert check(*flags) == USAGE
    assert f"{curves}:2:" in capsys.readouterr().err


def test_a_wrong_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, a sentence that names the flag, no traceback."""
    assert check("--policy", "p.yaml", "--store", "mysql://db") == USAGE
    assert capsys.readouterr().err.startswith("--store: error: ")
    with pytest.raises(SystemExit) as ended:
        main(["--nonsense"])
    assert ended.value.code == USAGE


def test_a_policy_that_is_not_there_is_told_at_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the path; a folder without the store's files knows no last good policy."""
    flags = ["--policy", str(tmp_path / "none.yaml"), "--store", f"embedded:{tmp_path / 'store'}"]
    assert main([*flags, "--metrics", "", "--operators", f"unix:{tmp_path / 's'}"]) == USAGE
    error = capsys.readouterr().err
    assert str(tmp_path / "none.yaml") in error
    assert "Traceback" not in error


def test_what_cannot_be_listened_on_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and what to do."""
    (tmp_path / "policy.yaml").write_text(SMALL)
    flags = ["--policy", str(tmp_path / "policy.yaml"), "--store", f"embedded:{tmp_path / 'store'}", "--metrics", ""]
    socket = f"unix:{tmp_path / 'no' / 'such' / 'folder'}"
    assert main([*flags, "--agents", "127.0.0.1:0", "--operators", socket]) == FAILED
    assert capsys.readouterr().err.startswith(f"rackpower-controller: error: cannot listen on {socket}: there is no")
