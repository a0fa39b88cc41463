"""Messages from buyers: validation, limits, and the mail that a seller gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.domain.errors import Problem
from listings.service.mail.messages import BuyerMessage
from tests.harness import Harness, Person
from tests.mail_server import Mailbox, create_alice, deliver, mail_flags
from tests.site.market import create

ANA = BuyerMessage("Ana Tūī", "ana@example.com", "Is it still there?\r\n\r\nSubject: You won")

pytestmark = pytest.mark.decision("G52")


@pytest.fixture
def harness(tmp_path: Path, mailbox: Mailbox) -> Iterator[Harness]:
    with Harness(tmp_path, **mail_flags(mailbox)) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness, mailbox: Mailbox) -> Person:
    return create_alice(harness, mailbox)


def write(
    harness: Harness, listing_id: int, message: BuyerMessage = ANA, address: str = "192.0.2.1", browser: str = "b"
) -> None:
    messages = harness.services.messages
    recipient = harness.run(messages.find_recipient(listing_id))
    harness.run(messages.send(recipient, message, address, browser))


def count_stored(harness: Harness) -> int:
    """Return how many mails are due within a day."""
    found, now = 0, int(harness.clock()) + 24 * 3600
    while harness.run(harness.store.claim_mail(now, now + 1)) is not None:
        found += 1
    return found


def test_a_message_reaches_the_seller_with_the_buyers_address(
    harness: Harness, alice: Person, mailbox: Mailbox
) -> None:
    listing_id = create(harness, alice, title="Rimu\ntable \N{BLACK CHESS KNIGHT}")
    write(harness, listing_id)
    deliver(harness)
    [message] = mailbox.messages
    assert mailbox.recipients == [alice.account.email]
    assert (message["Reply-To"], message["From"]) == (
        "Ana Tūī <ana@example.com>",
        "Listings <no-reply@market.example>",
    )
    assert message["Subject"] == "Message about: Rimu table \N{BLACK CHESS KNIGHT}"
    assert "\r\n> Is it still there?\r\n>\r\n> Subject: You won\r\n" in mailbox.text
    assert f"https://market.example/listings/{listing_id}" in mailbox.text
    assert count_stored(harness) == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "  "}, "Enter your name"),
        ({"name": "Ana\nBcc: bob@example.com"}, "A name must have"),
        ({"email": "ana"}, "Enter your email address"),
        ({"email": "ana@example.com,bob@example.com"}, "Enter your email address"),
        ({"email": "a..na@example.com"}, "Enter your email address"),
        ({"text": " \n"}, "Enter a message"),
        ({"text": "x" * 2001}, "2,000 characters, got 2,001"),
    ],
)
def test_an_invalid_message_is_rejected(harness: Harness, alice: Person, changes: dict[str, str], text: str) -> None:
    with pytest.raises(Problem, match=text):
        write(harness, create(harness, alice), ANA._replace(**changes))
    assert count_stored(harness) == 0


def test_a_title_adds_no_header(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    write(harness, create(harness, alice, title="=?utf-8?q?L=0D=0AX-Evil=3A_1?="))
    deliver(harness)
    [message] = mailbox.messages
    assert (message["X-Evil"], message["Subject"]) == (None, "Message about: = ?utf-8?q?L=0D=0AX-Evil=3A_1?=")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('Ana, "Bo" <x@y>', "Ana Bo x y"),
        (f"Ana, bob@example.com, {'y' * 60}", f"Ana bob example.com {'y' * 60}"),
        (f"{'a' * 60} (O'Neil Jr.)", f"{'a' * 60} O'Neil Jr."),
        ("=?utf-8?q?Bob=2C_evil=40x=2Ecom=2C?=", "utf-8?q?Bob=2C_evil=40x=2Ecom=2C?="),
        (
            "=?utf-8?q?B=0D=0ABcc=3A_a=40x=2Ecom=0D=0A=0D=0APay?= yy",
            "utf-8?q?B=0D=0ABcc=3A_a=40x=2Ecom=0D=0A=0D=0APay?= yy",
        ),
    ],
)
def test_a_buyers_name_adds_no_address(
    harness: Harness, alice: Person, mailbox: Mailbox, name: str, shown: str
) -> None:
    write(harness, create(harness, alice), BuyerMessage(name, "o'na+a@sub.example.com", "\x00Hi\x1b"))
    deliver(harness)
    [message] = mailbox.messages
    [address] = message["Reply-To"].addresses
    assert (message["Bcc"], len(message.get_all("Subject", []))) == (None, 1)
    assert (address.display_name, address.addr_spec) == (shown, "o'na+a@sub.example.com")
    assert "\r\n> Hi\r\n" in mailbox.text


def test_a_message_keeps_all_characters_except_controls(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    write(harness, create(harness, alice), ANA._replace(text=f"10\xa0km\ra\u3000b\u2028{family}\ud800\x1b!"))
    deliver(harness)
    assert f"\r\n> 10\xa0km\r\n> a\u3000b\r\n> {family}!\r\n" in mailbox.text


def test_bidirectional_controls_reverse_no_text_of_ours(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    controls = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    write(harness, create(harness, alice, title=f"A{controls}B"), ANA._replace(text=f"{controls}x"))
    deliver(harness)
    assert mailbox.subjects == ["Message about: AB"]
    assert 'your listing "AB":\r\n\r\n> x\r\n' in mailbox.text


@pytest.mark.parametrize(("limit", "per"), [(10, "browser"), (60, "network"), (20, "listing"), (50, "seller")])
def test_messages_are_limited(harness: Harness, alice: Person, limit: int, per: str) -> None:
    sellers = [alice, harness.person("bob")] if per == "network" else [alice]
    listings = [create(harness, seller) for seller in sellers for _ in range(1 if per == "listing" else 3)]

    def write_from(number: int) -> None:
        network, browser = 0 if per == "network" else number, "b" if per == "browser" else str(number)
        write(harness, listings[number % len(listings)], address=f"192.0.2.{network}", browser=browser)

    for number in range(limit):
        write_from(number)
    with pytest.raises(Problem, match="Too many messages in the last hour"):
        write_from(limit)
    harness.clock.advance(3600)
    write_from(limit)


def test_only_sellers_on_the_market_who_want_messages_get_them(harness: Harness, alice: Person) -> None:
    shown, paused = create(harness, alice), create(harness, alice, is_active=False)
    harness.run(harness.services.accounts.set_messages(alice.account, is_on=False))
    for listing_id, code in ((shown, "path_not_found"), (paused, "listing_not_found"), (99, "listing_not_found")):
        with pytest.raises(Problem) as caught:
            write(harness, listing_id)
        assert caught.value.code == code
    harness.run(harness.services.accounts.set_messages(alice.account, is_on=True))
    write(harness, shown)


def test_erasing_an_account_deletes_messages_that_were_not_sent(
    harness: Harness, alice: Person, mailbox: Mailbox
) -> None:
    write(harness, create(harness, alice))
    harness.run(harness.services.accounts.erase(alice.account.email))
    deliver(harness)
    assert (mailbox.messages, count_stored(harness)) == ([], 0)


def test_without_mail_there_are_no_messages(tmp_path: Path) -> None:
    with Harness(tmp_path / "b") as harness:
        listing_id = create(harness, harness.person("alice"))
        with pytest.raises(Problem) as caught:
            write(harness, listing_id)
        assert caught.value.code == "path_not_found"
