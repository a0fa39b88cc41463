"""Round trips through a real LibreOffice Calc, where it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import Harness, create_member
from tests.service.importing import Shop

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed")]
CSV_OPTIONS = "44,34,76,1"  # comma, double quotes, UTF-8, from the first line
EXPORT_FILTERS = {"csv": f"csv:Text - txt - csv (StarCalc):{CSV_OPTIONS}", "xlsx": "xlsx:Calc MS Excel 2007 XML"}


def convert(path: Path, to: str) -> bytes:
    """Return a file as it is after Calc has opened and saved it."""
    folder = path.parent / "saved"
    subprocess.run(
        [
            *(str(OFFICE), f"-env:UserInstallation=file://{path.parent}/profile", "--headless"),
            *(f"--infilter=CSV:{CSV_OPTIONS}", "--convert-to", EXPORT_FILTERS[to], "--outdir", str(folder), str(path)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return (folder / f"{path.stem}.{to}").read_bytes()


@pytest.mark.parametrize(("exported", "saved"), [("csv", "csv"), ("xlsx", "xlsx"), ("csv", "xlsx"), ("xlsx", "csv")])
def test_a_round_trip_through_calc_changes_nothing(harness: Harness, tmp_path: Path, exported: str, saved: str) -> None:
    shop = Shop(harness, harness.run(create_member(harness.services, "alice")))
    for number, text in enumerate(["00117035", "12E5", "9421012921780", "=1+1", "1/2", "sku-17", "007"]):
        shop.create(title=f"Listing {number}", external_id=text, category=text, content=f"one\r\ntwo {text}", price=5.5)
    shop.change(shop.create(title="Deleted"))
    before = shop.listings()
    path = tmp_path / f"a.{exported}"
    path.write_bytes(shop.export(path.name))
    assert set(shop.outcomes(convert(path, saved), f"a.{saved}")) == {"unchanged"}
    assert shop.listings() == before
