"""Where to emulate: hosts files and the words behind ``emulation:``, right and wrong."""

from __future__ import annotations

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner.emulation import parse_address, parse_rate, read_setup, read_token, transport_names

TOKEN = "0123456789abcdef"
HOSTS = "hosts:\n  - {name: a, address: 10.0.0.1}\n"


@pytest.fixture
def written(tmp_path):
    (tmp_path / "token").write_text(TOKEN)

    def write(text, head="listen: 10.0.0.9:7401\ntoken_file: token\n"):
        path = tmp_path / "hosts.yml"
        path.write_text(head + text)
        return str(path)

    return write


def test_a_hosts_file_says_where_each_rank_runs(written):
    setup = read_setup(
        written(
            "hosts:\n"
            "  - {name: a, nics: [10.0.0.1, 10.1.0.1], ranks: [3, 0], location: leaf 1}\n"
            "  - {name: b, address: 10.0.0.2, slots: 2}\n"
            "  - {address: 10.0.0.3}\n"
            "repeat: 5\njoin: 120s\nlimit: 90s\n"
        )
    )
    assert setup.listen == ("10.0.0.9", 7401)
    assert setup.token == TOKEN.encode()
    assert (setup.repeats, setup.join_s, setup.limit_s) == (5, 120.0, 90.0)
    places = setup.places(5)
    assert [place.host for place in places] == ["a", "b", "b", "a", "10.0.0.3"]
    assert places[3].addresses == ("10.0.0.1", "10.1.0.1")
    assert setup.hosts[0].location == "leaf 1"


def test_options_stand_behind_the_file(written):
    assert read_setup(written(HOSTS) + ",repeat=7,transport=tcp,limit=2s").repeats == 7


def test_namespaces_are_described_by_their_name():
    setup = read_setup("namespaces=4,link=400Mbit,slow.2=25MB/s,nics=2,repeat=3")
    assert setup.rates_bps(4)[2] == 25 * 8 * 10**6
    assert [place.host for place in setup.places(8)] == [f"host{host}" for host in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert setup.places(8)[7].addresses == ("10.77.0.4", "10.77.1.4")
    assert read_setup("namespaces").num_namespaces(3) == 3


def test_loopback_needs_nothing():
    setup = read_setup("loopback")
    assert setup.is_local
    assert {place.addresses for place in setup.places(3)} == {("127.0.0.1",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: 5", "'hosts' must be a list of hosts"),
        ("hosts: [5]", "'hosts' must be a list of hosts"),
        ("hosts: [{name: a}]", "host 0 needs an 'address'"),
        ("hosts: [{adress: 10.0.0.1}]", "no key 'adress' - did you mean 'address'"),
        ("hosts: [{address: a, nics: []}]", "'nics' must be a list of addresses"),
        ("hosts: [{address: a, ranks: 0}]", "'ranks' must be a list of ranks"),
        ("hosts: [{address: a, ranks: [-1]}]", "'ranks' must be a whole number from 0"),
        ("hosts: [{address: a, ranks: [0], slots: 1}]", "'ranks' and 'slots'; leave one"),
        ("hosts: [{address: a, slots: many}]", "'slots' must be a whole number"),
        ("hosts: [{address: a}, {address: a}]", "two hosts called 'a'"),
        (f"{HOSTS}repeet: 3", "no key 'repeet' - did you mean 'repeat'"),
        (f"{HOSTS}repeat: 0", "'repeat' must be a whole number from 1"),
        (f"{HOSTS}transport: tpc", "no transport 'tpc' - did you mean 'tcp'"),
        (f"{HOSTS}limit: soon", "'limit': 'soon' is not a duration"),
        (f"{HOSTS}namespaces: {{count: 2}}", "give one of 'hosts', 'namespaces' and 'loopback'"),
        ("repeat: 3", "give one of 'hosts', 'namespaces' and 'loopback'"),
    ],
)
def test_a_wrong_hosts_file_is_told_in_a_sentence(written, text, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(written(text))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("token_file: token\n", "'listen' is missing"),
        ("listen: here\ntoken_file: token\n", "must be HOST:PORT"),
        ("listen: a:99999\ntoken_file: token\n", "must be HOST:PORT"),
        ("listen: a:1\ntoken_file: none\n", "token file .*none cannot be read"),
    ],
)
def test_so_is_a_wrong_place_to_join(written, head, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(written(HOSTS, head))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere", "no hosts file 'nowhere'"),
        ("missing.yml", "missing.yml"),
        ("loopback,link=1Mbit", "'link' is an option of namespaces"),
        ("namespaces,lnk=1Mbit", "no option 'lnk' - did you mean 'link'"),
        ("namespaces,link=fast", "'link': 'fast' is not a bandwidth"),
        ("namespaces,link=0Mbit", "must be above 0"),
        ("namespaces=0", "'count' must be a whole number from 1"),
        ("namespaces,slow.1=1Mbit", "'slow' goes with 'link'"),
        ("namespaces,link=1Mbit,slow.x=1Mbit", "'slow' must be a whole number"),
    ],
)
def test_so_is_a_wrong_name(spec, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(spec)


def test_ranks_must_fit_the_hosts(written):
    setup = read_setup(
        written("hosts: [{name: a, address: x, ranks: [0]}, {name: b, address: y, ranks: [0]}]")
    )
    with pytest.raises(ConfigError, match="Rank 0 is on the hosts 'a' and 'b'"):
        setup.places(1)
    setup = read_setup(written("hosts: [{name: a, address: x, slots: 2}]"))
    with pytest.raises(ConfigError, match="no host has rank 2"):
        setup.places(3)
    setup = read_setup(written("hosts: [{name: a, address: x, ranks: [0, 1, 2]}]"))
    with pytest.raises(ConfigError, match="the hosts have 3"):
        setup.places(2)
    with pytest.raises(ConfigError, match="Host 4 is slow, but the last of 2 namespaces is 1"):
        read_setup("namespaces,link=1Mbit,slow.4=1Mbit").rates_bps(2)


def test_a_token_is_needed_and_long(monkeypatch, tmp_path):
    monkeypatch.delenv("CHAKRASCOPE_EMULATION_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"need a token .* the environment's CHAKRASCOPE_EMULATION_TOKEN"):
        read_token(None)
    monkeypatch.setenv("CHAKRASCOPE_EMULATION_TOKEN", TOKEN)
    assert read_token(None) == TOKEN.encode()
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(ConfigError, match="at least 16 characters"):
        read_token(tmp_path / "short")


def test_rates_and_addresses_are_read_as_people_write_them():
    assert (
        parse_rate("400Mbit", "x") == parse_rate("400Mb/s", "x") == parse_rate("50MB/s", "x") == 400_000_000
    )
    assert parse_address("[::1]:80", "x") == ("::1", 80)
    assert "tcp" in transport_names()
