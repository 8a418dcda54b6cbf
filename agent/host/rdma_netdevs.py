"""The network interfaces of RDMA devices: carrier, speed, the bond they are legs of, whether they have the default route.

Reading carrier or speed of an interface that is down gives EINVAL, which says nothing. /sys shows the interfaces of the
network namespace of whoever mounted it, and /proc/net those of the reader: so the routes are those of process 1 where they
can be had.
"""

from collections.abc import Iterable, Iterator

from agent.host.sysfs_text import TEXT_LIMIT, Texts, exists, is_folder, listed, target
from checks.infiniband_reading import Netdev, PortReading

MOST_NETDEVS = 8
MOST_UPPERS = 16


class Netdevs:
    """Those of one machine."""

    def __init__(self, sys_root: str, proc_root: str, texts: Texts) -> None:
        self._net, self._proc, self._texts = f"{sys_root}/class/net", proc_root, texts

    def of(
        self, device: str, parent: str, ports: Iterable[PortReading], routed: set[str]
    ) -> Iterator[Netdev]:
        """Give those of one RDMA device; `device` is its own folder, `parent` that of the device below it."""
        names = listed(f"{parent}/net")
        for port in ports:
            if port.link_layer == "Ethernet":
                names.append(self._texts.text(f"{device}/ports/{port.number}/gid_attrs/ndevs/0", {}))
        for name in list(dict.fromkeys(name for name in names if name and "/" not in name))[:MOST_NETDEVS]:
            folder = f"{self._net}/{name}"
            carrier = self._texts.number(f"{folder}/carrier")
            speed = self._texts.number(f"{folder}/speed")
            master = target(f"{folder}/master")
            bonds = [one for one in (name, master) if one and is_folder(f"{self._net}/{one}/bonding")]
            yield Netdev(
                name=name,
                operstate=self._texts.text(f"{folder}/operstate", {}),
                carrier=None if carrier is None else carrier == 1,
                carrier_changes=self._texts.number(f"{folder}/carrier_changes"),
                bond=bonds[0] if bonds else "",
                default_route=not routed.isdisjoint(self._above(name)),
                mbps=speed if speed is not None and speed > 0 else None,
            )

    def legs(self, netdevs: Iterable[Netdev]) -> tuple[tuple[str, bool], ...]:
        """Give the legs of the bond that these belong to, as (interface, up); none where there is no bond."""
        bond = next((netdev.bond for netdev in netdevs if netdev.bond), "")
        if not bond:
            return ()
        legs = self._texts.text(f"{self._net}/{bond}/bonding/slaves", {}, limit=TEXT_LIMIT).split()[
            :MOST_NETDEVS
        ]
        return tuple((leg, self._is_up(f"{self._net}/{leg}")) for leg in sorted(legs) if "/" not in leg)

    def _is_up(self, leg: str) -> bool:
        said = self._texts.text(f"{leg}/bonding_slave/mii_status", {}) or self._texts.text(
            f"{leg}/operstate", {}
        )
        return said != "down"

    def _above(self, name: str) -> set[str]:
        """Give the interface and whatever stands above it: its bond, bridges, VLANs."""
        seen: set[str] = set()
        waiting = [name]
        while waiting and len(seen) < MOST_UPPERS:
            one = waiting.pop()
            seen.add(one)
            folder = f"{self._net}/{one}"
            names = [entry.removeprefix("upper_") for entry in listed(folder) if entry.startswith("upper_")]
            names.append(target(f"{folder}/master"))
            waiting += [upper for upper in names if upper and upper not in seen]
        return seen

    def routed(self) -> set[str]:
        """Give the interfaces that have a default route, of IPv4 or IPv6. Raises OSError where that cannot be told."""
        net = next((one for one in (f"{self._proc}/1/net", f"{self._proc}/net") if exists(one)), None)
        if net is None:
            return set()
        return {*self._routed_v4(f"{net}/route"), *self._routed_v6(f"{net}/ipv6_route")}

    def _routed_v4(self, path: str) -> Iterator[str]:
        for line in self._texts.lines(path):
            words = line.split()
            if len(words) >= 8 and words[1] == words[7] == "00000000":
                yield words[0]

    def _routed_v6(self, path: str) -> Iterator[str]:
        for line in self._texts.lines(path):
            words = line.split()
            if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
                yield words[9]
