"""What a server shows to others and checks them with: its certificates and its access file, read again when they change.

docs/how-to/security.md says who is trusted for what.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from thence.errors import StrangerFrame
from thence.net.framing import Connection
from thence.net.security.access import AccessFile
from thence.net.security.exposure import check_listening
from thence.net.security.tls import Certificates, TlsFiles, check_name
from thence.runtime.event_loop import ignore
from thence.runtime.files import Reloading

log = logging.getLogger("thence.security")


class Security:
    """The certificates and the access file of one server."""

    def __init__(self, tls: TlsFiles | None = None, access: Path | None = None, *, insecure: bool = False) -> None:
        """Read the files. Without TLS nobody is asked for a certificate; without an access file, no client for a token."""
        self.certificates = None if tls is None else Certificates(tls)
        self.access = None if access is None else AccessFile(access)
        self.on_access: Callable[[], None] = ignore
        """Told when the access file says something else."""
        self._insecure = insecure
        self._files: list[Reloading] = []
        if self.certificates is not None and tls is not None:
            self._files.append(Reloading("the certificates", (tls.certificate, tls.key, tls.authority), self.certificates.read))
        if access is not None:
            self._files.append(Reloading("the access file", (access,), self._read_access))
        self._warn()

    def _read_access(self) -> None:
        if self.access is not None:
            self.access.read()
            self._warn()
            self.on_access()

    def _warn(self) -> None:
        """Say who may lead changes with a token that a captured server could use elsewhere."""
        if self.access is not None and (operators := self.access.unsigned_operators()):
            log.warning(
                "may lead changes (topology = true) with a token that does not sign: %s. "
                "A captured server could log in so elsewhere. Use thence token new NAME --signed",
                ", ".join(operators),
            )

    def look(self) -> None:
        """Read again what has changed."""
        for files in self._files:
            files.look()

    def reload(self) -> None:
        """Read everything again."""
        for files in self._files:
            files.again()

    def check_listening(self, host: str, *, peers: bool) -> None:
        """Refuse to listen where that would let in whoever comes (``net.security.exposure``)."""
        tls, access = self.certificates is not None, self.access is not None
        check_listening(host, tls=tls, access=access, insecure=self._insecure, peers=peers)

    @property
    def incoming(self) -> ssl.SSLContext | None:
        """How connections are taken."""
        return None if self.certificates is None else self.certificates.incoming

    @property
    def binding(self) -> bytes:
        """What proofs over connections that are taken now must cover; nothing without TLS."""
        return b"" if self.certificates is None else self.certificates.binding

    @property
    def outgoing(self) -> ssl.SSLContext | None:
        """How connections to peers are made."""
        return None if self.certificates is None else self.certificates.outgoing

    def doubt_server(self, connection: Connection, name: str) -> str:
        """Say why not to believe that somebody who called is the server ``name``."""
        if self.certificates is None:
            if self.access is None or self._insecure:
                return ""
            return "there is an access file and no TLS here, so no server can prove who it is"
        try:
            check_name(connection.get_extra_info("peercert"), name)
        except StrangerFrame as error:
            return str(error)
        return ""
