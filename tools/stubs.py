"""Generate the stubs of proto/, and tell whether the committed ones still say what the protos say.

`write` runs in .proto-venv (grpc_tools and ortools in one process abort the interpreter); `check` runs in
.venv and compares the descriptor inside each stub with the one that buf makes of the proto, so lint needs no generator.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
# What a stub that protoc generates ends in; everything else below proto/ is written by hand.
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def proto_files() -> list[Path]:
    """Return every proto, sorted, relative to `proto/`."""
    return sorted(path.relative_to(PROTO) for path in PROTO.rglob("*.proto"))


def write() -> int:
    """Generate all stubs anew; stubs whose proto is gone are removed.

    Returns:
        The exit code: 0 when every stub was written.
    """
    protoc = importlib.import_module("grpc_tools.protoc")
    wanted = {PROTO / f"{proto.with_suffix('')}{suffix}" for proto in proto_files() for suffix in SUFFIXES}
    stale = {path for suffix in SUFFIXES for path in PROTO.rglob(f"*{suffix}")} - wanted
    for path in stale:
        path.unlink()
    bin_dir = Path(sys.executable).parent
    code: int = protoc.main(
        [
            "protoc",
            f"-I{PROTO}",
            f"-I{Path(str(protoc.__file__)).parent / '_proto'}",
            f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={bin_dir / 'protoc-gen-mypy_grpc'}",
            f"--python_out={PROTO}",
            f"--grpc_python_out={PROTO}",
            f"--mypy_out=quiet:{PROTO}",
            f"--mypy_grpc_out=quiet:{PROTO}",
            *(str(proto) for proto in proto_files()),
        ]
    )
    drop_serviceless(wanted)
    return code


def drop_serviceless(stubs: set[Path]) -> None:
    """Remove gRPC stubs of protos without a service: they would say nothing."""
    for path in stubs:
        if path.name.endswith("_pb2_grpc.py") and path.exists() and "Servicer" not in path.read_text():
            path.unlink()
            path.with_suffix(".pyi").unlink(missing_ok=True)


def check() -> int:
    """Compare the descriptors inside the committed stubs with the protos.

    Returns:
        The exit code: 1 when a stub is missing or says something else than its proto.
    """
    # Not at the top: `write` runs where only the generator is installed.
    from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    buf = [str(Path(sys.executable).parent / "buf"), "build", "--exclude-source-info", "-o", "-"]
    image = FileDescriptorSet.FromString(subprocess.run(buf, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    by_name = {file.name: file for file in image.file}
    stale: list[str] = []
    for proto in proto_files():
        module = str(proto.with_suffix("")).replace("/", ".") + "_pb2"
        try:
            stub = File.FromString(importlib.import_module(module).DESCRIPTOR.serialized_pb)
        except ModuleNotFoundError:
            stale.append(str(proto))
            continue
        if said(stub) != said(by_name[str(proto)]):
            stale.append(str(proto))
    for name in stale:
        print(f"proto/{name}: its stubs are missing or old; run `make proto` and commit proto/", file=sys.stderr)
    return 1 if stale else 0


def said(file: FileDescriptorProto) -> object:
    """Return what a file descriptor says, without what only one of the two compilers writes."""
    from google.protobuf.json_format import MessageToDict

    return without_json_names(MessageToDict(file))  # drops buf's own remarks, which are unknown fields


def without_json_names(value: object) -> object:
    """Return a tree of dicts and lists without its `jsonName` entries."""
    if isinstance(value, dict):
        return {key: without_json_names(child) for key, child in value.items() if key != "jsonName"}
    if isinstance(value, list):
        return [without_json_names(child) for child in value]
    return value


if __name__ == "__main__":
    commands = {"write": write, "check": check}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit("usage: stubs.py write|check")
    sys.exit(commands[sys.argv[1]]())
