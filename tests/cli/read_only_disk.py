"""Run the service on an ext4 disk that becomes read-only: `python -m tests.cli.read_only_disk FOLDER`.

Run it as root in a mount namespace of its own. Prints what was observed as JSON. An error that the kernel is told to
simulate makes the file system read-only while files are open, as after a failure of the disk; `mount -o remount,ro`
would be refused.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.commands import Data, Program, Serving

ALICE = ("account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "1")
_IMAGE_BYTES = 128 * 1024 * 1024


def run(*command: object) -> str:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


class Disk:
    """An image of a disk and the folder on which it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self._image = folder / "image"
        self.folder.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        run("mkfs.ext4", "-q", self._image)

    def mount(self, *options: str) -> None:
        run("mount", "-o", ",".join(("loop", "errors=remount-ro", *options)), self._image, self.folder)

    def unmount(self) -> None:
        run("umount", self.folder)

    def fail(self) -> None:
        """Let the kernel make it read-only."""
        device = Path(run("findmnt", "-no", "SOURCE", self.folder).strip()).name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("simulated", "ascii")


def observe_requests(serving: Serving, used_key: str, new_key: str) -> dict[str, Any]:
    created = serving.http.post(
        "/api/v1/listings", headers={"X-API-Key": used_key}, json={"title": "Lamp", "content": "Bright."}
    )
    return {
        "create": created.status_code,
        "read": serving.status(used_key),
        "read with a new key": serving.status(new_key),
        "ready": serving.http.get("/readyz").status_code,
    }


def create_key(program: Program, *arguments: str) -> str:
    data: Data = json.loads(program.run(*arguments, "--json").out)
    return str(data.get("key", data.get("id")))


def main(folder: Path) -> dict[str, Any]:
    disk = Disk(folder)
    disk.mount()
    program = Program(disk.folder)
    program.run("migrate")
    account = create_key(program, *ALICE)
    used, new = (create_key(program, "key", "create", account, "--name", name) for name in ("used", "new"))
    observed: dict[str, Any] = {}
    with program.serve() as serving:
        ids = [serving.create(used) for _ in range(3)]
        disk.fail()
        observed["read-only"] = observe_requests(serving, used, new)
        observed["exit code"] = serving.stop().code
    disk.unmount()
    disk.mount()
    with program.serve() as serving:
        observed["stored"] = [serving.read(used, listing).status_code for listing in ids]
        observed["writable"] = observe_requests(serving, used, new)
        serving.stop()
    disk.unmount()
    disk.mount("ro")
    observed["start"] = program.run("serve", "--port", "0").err
    disk.unmount()
    return observed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
