"""DNS questions of sandboxes, and their answers."""

from __future__ import annotations

import ipaddress
import struct

import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_LONGEST = 512  # bytes; a name has at most 255
_TIME_TO_LIVE = 60  # seconds
_LONGEST_REPLY = 1200


class NoQuestion(Exception):
    """A message is no question that could be answered."""


class Question:
    """One DNS question; `name` is the name in lower case, without the final dot."""

    def __init__(self, message: bytes) -> None:
        """Parses an arbitrary message; raises NoQuestion unless it is one question, with at most an OPT record."""
        if len(message) > _LONGEST or len(message) < 12:
            raise NoQuestion("of an unlikely length")
        questions, answers, authorities, more = struct.unpack_from(">4H", message, 4)
        if questions != 1 or answers or authorities or more > 1:
            raise NoQuestion("not one question alone")
        try:
            query = dns.message.from_wire(message, ignore_trailing=True)
            self._reply = dns.message.make_response(query, recursion_available=True)
        except (dns.exception.DNSException, ValueError) as error:
            raise NoQuestion(str(error)) from None
        self._about = query.question[0]
        self.name = self._about.name.to_text(omit_final_dot=True).lower()

    @property
    def wants_address(self) -> bool:
        """Whether it asks for a name's IPv4 address, the only kind that sandboxes get."""
        return bool(self._about.rdtype == dns.rdatatype.A)

    @property
    def address(self) -> str | None:
        """The IPv4 address in a question for its name; None if there is none."""
        digits, end, more = self.name.partition(".in-addr.arpa")
        if not end or more:
            return None
        try:
            return str(ipaddress.IPv4Address(".".join(reversed(digits.split(".")))))
        except ValueError:
            return None

    @property
    def wants_name(self) -> bool:
        """Whether it asks for the name of an address."""
        return bool(self._about.rdtype == dns.rdatatype.PTR)

    def answer(self, kind: str, value: str) -> bytes:
        """Returns the answer with a value of a kind ("A", "PTR")."""
        self._reply.answer.append(dns.rrset.from_text(self._about.name, _TIME_TO_LIVE, "IN", kind, value))
        return self._wire()

    def answer_nothing(self) -> bytes:
        """Returns the answer that the name exists, but has no record of the kind."""
        return self._wire()

    def answer_unknown(self) -> bytes:
        """Returns the answer that the name does not exist."""
        self._reply.set_rcode(dns.rcode.NXDOMAIN)
        return self._wire()

    def answer_failure(self) -> bytes:
        """Returns the answer that resolving failed."""
        self._reply.set_rcode(dns.rcode.SERVFAIL)
        return self._wire()

    def _wire(self) -> bytes:
        wire: bytes = self._reply.to_wire(max_size=_LONGEST_REPLY)
        return wire
