"""The record and its fields (decisions G1-G8)."""

from typing import Any

from tests.api.decisions.scenario import (
    EMPTY,
    LAMP,
    MALFORMED,
    case,
    create,
    fields,
    first_record_fields,
    get_list,
    header,
    id_in_bucket,
    invalid,
    no_header,
    read,
    record,
    record_fields,
    row,
    send,
    send_back_record,
    stored_case,
    update,
    wait,
)

HIDDEN: dict[str, Any] = {"district": "Te Aro", "latitude": -41.3, "longitude": 174.8}
HOUR_LATER = "2026-09-21 15:13:20"

CASES = [
    stored_case("G1", "district and coordinates are stored", create(**HIDDEN), expect=(201, row(**HIDDEN))),
    case(
        "G1",
        "a record has the fourteen fields even if more is stored",
        create(**HIDDEN),
        read("new"),
        expect=(200, record_fields()),
    ),
    stored_case(
        "G1",
        "included fields follow the fourteen",
        create(**HIDDEN),
        send("GET", "/{new}?include=district,latitude,longitude"),
        expect=(200, record_fields(*HIDDEN), fields(**HIDDEN)),
    ),
    stored_case(
        "G1",
        "included fields follow the fourteen in a list too",
        create(**HIDDEN),
        get_list("?include=all&limit=1"),
        expect=(200, first_record_fields(*HIDDEN)),
    ),
    case(
        "G1",
        "a field that cannot be included is rejected",
        send("GET", "/{own}?include=title"),
        expect=invalid(
            "include must be all or a comma-separated list of district, latitude, longitude, deleted_at, external_id, "
            'etag, got "title"'
        ),
    ),
    stored_case(
        "G2", "a title of 255 emoji is accepted", create(title="🚲" * 255), expect=(201, record(title="🚲" * 255))
    ),
    case(
        "G2",
        "a title of 256 characters is rejected",
        create(title="x" * 256),
        expect=invalid("title must be at most 255 characters, got 256"),
    ),
    stored_case("G2", "a content of 100,000 characters is accepted", create(content="c" * 100_000), expect=(201,)),
    case("G2", "a content of 100,001 characters is rejected", create(content="c" * 100_001), expect=invalid()),
    case("G2", "a category of 101 characters is rejected", create(category="c" * 101), expect=invalid()),
    case("G2", "a region of 101 characters is rejected", create(region="r" * 101), expect=invalid()),
    case("G2", "a district of 101 characters is rejected", create(district="d" * 101), expect=invalid()),
    case("G2", "a location of 255 characters is accepted", create(location="l" * 255), expect=(201,)),
    case("G2", "a location of 256 characters is rejected", create(location="l" * 256), expect=invalid()),
    case("G2", "a title of white space alone counts as missing", create(title=" \t\u3000"), expect=invalid()),
    stored_case(
        "G2",
        "leading and trailing space and U+000B are stored as sent",
        create(title=" La\u000bmp "),
        expect=(201, record(title=" La\u000bmp ")),
    ),
    stored_case(
        "G2",
        "a letter and a combining accent are not composed",
        create(title="e\u0301"),
        expect=(201, record(title="e\u0301")),
    ),
    case("G2", "the character U+0000 is rejected", create(content="a\0b"), expect=invalid()),
    case(
        "G2",
        "a lone surrogate is rejected",
        send("POST", body=b'{"title": "\\ud83d", "content": "c"}'),
        expect=MALFORMED,
    ),
    stored_case(
        "G3", "50 images are accepted", create(images=["a.jpg"] * 50), expect=(201, record(images=["a.jpg"] * 50))
    ),
    case("G3", "51 images are rejected", create(images=["a.jpg"] * 51), expect=invalid()),
    case("G3", "an image of 2,048 characters is accepted", create(images=["a" * 2048]), expect=(201,)),
    case("G3", "an image of 2,049 characters is rejected", create(images=["a" * 2049]), expect=invalid()),
    stored_case(
        "G3",
        "order and duplicates of images are preserved",
        create(images=["/b", "http://a.example/ü", "/b"]),
        expect=(201, record(images=["/b", "http://a.example/ü", "/b"])),
    ),
    case("G3", "an image with a space is rejected", create(images=["/my picture.jpg"]), expect=invalid()),
    case("G3", "an image with a backslash is rejected", create(images=["\\\\host\\a.jpg"]), expect=invalid()),
    case("G3", "an image with another scheme is rejected", create(images=["javascript:alert(1)"]), expect=invalid()),
    case("G3", "an image without a host is rejected", create(images=["https:///a.jpg"]), expect=invalid()),
    case("G3", "an image with user info is rejected", create(images=["https://me:pw@a.example/1"]), expect=invalid()),
    case(
        "G3",
        "strict handling rejects a relative image",
        send("POST", json={**LAMP, "images": ["a.jpg"]}, headers={"Prefer": "handling=strict"}),
        expect=invalid(),
    ),
    stored_case(
        "G4",
        "the highest price is accepted",
        create(price=999_999_999.99),
        expect=(201, record(price=999_999_999.99), row(price_cents=99_999_999_999)),
    ),
    case("G4", "a price of a billion is rejected", create(price=1_000_000_000), expect=invalid()),
    case("G4", "a negative price is rejected", create(price=-0.01), expect=invalid()),
    case(
        "G4",
        "floating-point noise in a price is rounded away",
        create(price=0.1 + 0.2),
        expect=(201, record(price=0.3)),
    ),
    case("G4", "a real third decimal of a price is rejected", create(price=19.999), expect=invalid()),
    stored_case("G4", "minus zero is stored as zero", create(price=-0.0), expect=(201, row(price_cents=0))),
    case("G4", "a number in a string is rejected", create(price="12"), expect=invalid()),
    case("G4", "true is not a number", create(price=True), expect=invalid()),
    case(
        "G4", "NaN is rejected", send("PATCH", "/{own}", body=b'{"price": NaN}'), expect=(400, record("own", price=45))
    ),
    stored_case(
        "G4",
        "a latitude is accepted without a longitude, up to the pole",
        create(latitude=-90),
        expect=(201, row(latitude=-90.0)),
    ),
    case("G4", "a latitude beyond the pole is rejected", create(latitude=90.1), expect=invalid()),
    case("G4", "a longitude beyond 180 degrees is rejected", create(longitude=-180.5), expect=invalid()),
    stored_case("G5", "fields that were never given are empty", create(), expect=(201, record(**EMPTY))),
    stored_case(
        "G5", "coordinates that were never given are null", create(), expect=(201, row(latitude=None, longitude=None))
    ),
    stored_case(
        "G5",
        "null on create means not given",
        create(type=None, price=None, images=None, is_active=None),
        expect=(201, record(**EMPTY, is_active=True)),
    ),
    stored_case(
        "G5",
        "null on update clears an optional field",
        update(price=None, region=None, images=None, price_type=None),
        expect=(200, record("own", price=0, region="", images=[], price_type="fixed", title="Chair")),
    ),
    case("G5", "null on update is rejected for the title", update(title=None), expect=invalid()),
    case("G5", "null on update is rejected for is_active", update(is_active=None), expect=invalid()),
    case("G5", "null on update is rejected for the type", update(type=None), expect=invalid()),
    stored_case("G5", "an empty string means not stated", update(region=""), expect=(200, record("own", region=""))),
    case("G5", "an empty type is rejected", create(type=""), expect=invalid()),
    case("G5", "an empty price_type is rejected", create(price_type=""), expect=invalid()),
    stored_case(
        "G6",
        "a record can be sent back whole",
        wait(3600),
        send_back_record,
        expect=(
            200,
            header("x-ignored-fields", "id, view_count, created_at, updated_at"),
            record("own", updated_at="2026-09-21 14:13:20"),
        ),
    ),
    case(
        "G6",
        "the name of an ignored field is percent-encoded",
        update(**{"é,": 1}),
        expect=(200, header("x-ignored-fields", "%C3%A9%2C")),
    ),
    case(
        "G6",
        "the first twenty ignored fields are named",
        update(**{f"k{number}": 1 for number in range(25)}),
        expect=(200, header("x-ignored-fields", r"k0(, k\d+){19}")),
    ),
    case(
        "G6",
        "X-Ignored-Fields is absent if nothing was ignored",
        update(price=1),
        expect=(200, no_header("x-ignored-fields")),
    ),
    case(
        "G6",
        "strict handling rejects an unknown field",
        send("PATCH", "/{own}", json={"price": 1, "colour": "red"}, headers={"Prefer": "handling=strict"}),
        expect=(*invalid(), record("own", price=45)),
    ),
    stored_case("G7a", "an id contains the bucket and ascends", create(), expect=(201, id_in_bucket)),
    stored_case(
        "G7",
        "both times of a new listing are the time of creation, in UTC",
        wait(3600),
        create(),
        expect=(201, record(created_at=HOUR_LATER, updated_at=HOUR_LATER)),
    ),
    stored_case(
        "G7",
        "a change moves updated_at and not created_at",
        wait(3600),
        update(price=50),
        expect=(200, record("own", created_at="2026-09-21 14:13:20", updated_at=HOUR_LATER)),
    ),
    stored_case(
        "G7",
        "the same value again changes nothing",
        wait(3600),
        update(price=45),
        expect=(200, record("own", updated_at="2026-09-21 14:13:20")),
    ),
    stored_case(
        "G7",
        "updated_at never goes back",
        wait(-3600),
        update(price=50),
        expect=(200, record("own", price=50, updated_at="2026-09-21 14:13:20")),
    ),
    stored_case(
        "G8", "reading does not count as a view", read(), get_list(), read(), expect=(200, fields(view_count=0))
    ),
]
