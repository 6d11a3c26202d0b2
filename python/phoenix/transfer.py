# SPDX-License-Identifier: Apache-2.0
"""A transfer engine with the method names of Mooncake's Python engine.

Methods return 0 (or an id, an address) on success and a negative number on
failure, as their callers expect; last_error() says why. A peer is named by its
session, "host:port", port being get_rpc_port() of its engine. The calls give
up the interpreter's lock while they wait.
"""

import ctypes
import enum
import mmap
import threading
import time
from array import array
from ctypes import byref, c_uint64, c_void_p

from . import _libflagcx

__all__ = ["TransferEngine", "TransferOpcode", "TransferNotify"]


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


class TransferNotify:
    """A name and a message that the peer gets when a transfer has succeeded."""

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg


_TRANSPORTS = {"": None, "auto": None, "tcp": b"tcp", "rdma": b"ibrc", "ibrc": b"ibrc"}

# What get_batch_transfer_status() and the synchronous calls return.
_FAILED = -1


class TransferEngine:
    def __init__(self, so_file=None):
        self._lib = _libflagcx.load(so_file)
        self._engine = None
        self._error = ""
        self._lock = threading.Lock()
        self._batches = {}  # id: (connection, transfer id)
        self._next_batch = 1
        self._managed = {}  # address: the mapping behind it

    # ---- life

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        """Start. Only peer-to-peer handshakes: no metadata service is asked.

        protocol "tcp" or "rdma" is what is used, or the call fails; "" chooses.
        device_name is an interface, address or CIDR for the listener, "" for all.
        """
        if self._engine is not None:
            return self._fail("initialize: done before")
        if metadata_server not in ("", "P2PHANDSHAKE"):
            return self._fail(f"initialize: metadata server {metadata_server}: use P2PHANDSHAKE")
        if protocol not in _TRANSPORTS:
            return self._fail(f"initialize: protocol {protocol}: tcp, rdma or ''")
        port = 0
        if local_hostname.count(":") == 1 and local_hostname.split(":")[1].isdigit():
            port = int(local_hostname.split(":")[1])
        options = _libflagcx.EngineOptions(
            size=ctypes.sizeof(_libflagcx.EngineOptions), port=port,
            interface=device_name.encode() if device_name else None,
            transport=_TRANSPORTS[protocol], device=0, private_notifs=1)
        engine = c_void_p()
        if self._lib.flagcxP2pEngineCreateWith(byref(options), byref(engine)):
            return self._fail()
        self._engine = engine
        return 0 if self._lib.flagcxP2pEngineStartRpcServer(engine) == 0 else self._fail()

    def close(self):
        """End every transfer and the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._lib.flagcxP2pEngineDestroy(engine)
        self._managed.clear()

    def __del__(self):
        try:
            self.close()
        except Exception:  # the interpreter may be half gone
            pass

    def last_error(self):
        return self._error

    def _fail(self, text=None):
        self._error = text or self._lib.flagcxP2pLastError().decode()
        return _FAILED

    def get_rpc_port(self):
        return self._lib.flagcxP2pEngineGetRpcPort(self._engine)

    def get_local_topology(self, device_name=None):
        """What carries the bytes, in words."""
        buf = ctypes.create_string_buffer(256)
        self._lib.flagcxP2pEngineTransport(self._engine, buf, len(buf))
        return buf.value.decode()

    # ---- memory

    def register_memory(self, buffer_addr, capacity, location="*"):
        mr = c_uint64()
        rc = self._lib.flagcxP2pRpcRegister(self._engine, buffer_addr, capacity, byref(mr))
        return 0 if rc == 0 else self._fail()

    def unregister_memory(self, buffer_addr):
        rc = self._lib.flagcxP2pRpcDeregister(self._engine, buffer_addr)
        return 0 if rc == 0 else self._fail()

    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        """All of them, or none."""
        if len(buffer_addresses) != len(capacities):
            return self._fail("batch_register_memory: lists of different lengths")
        for i, (addr, size) in enumerate(zip(buffer_addresses, capacities)):
            if self.register_memory(addr, size, location):
                error = self._error
                self.batch_unregister_memory(buffer_addresses[:i])
                return self._fail(error)
        return 0

    def batch_unregister_memory(self, buffer_addresses):
        rc = 0
        for addr in buffer_addresses:
            rc = self.unregister_memory(addr) or rc
        return rc

    def allocate_managed_buffer(self, length):
        """Registered host memory of the engine's own; its address, 0 on failure."""
        memory = mmap.mmap(-1, max(length, 1))
        addr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if self.register_memory(addr, max(length, 1)):
            return 0
        self._managed[addr] = memory
        return addr

    def free_managed_buffer(self, buffer_addr, length):
        if buffer_addr not in self._managed:
            return self._fail("free_managed_buffer: not one of ours")
        rc = self.unregister_memory(buffer_addr)
        del self._managed[buffer_addr]
        return rc

    def write_bytes_to_buffer(self, dest_address, src_ptr, length):
        data = src_ptr if isinstance(src_ptr, (bytes, bytearray)) else src_ptr.encode()
        ctypes.memmove(dest_address, bytes(data), length)
        return 0

    def read_bytes_from_buffer(self, source_address, length):
        return ctypes.string_at(source_address, length)

    def get_first_buffer_address(self, segment_name):
        """Where the peer's first registration (by address) starts; 0 on failure."""
        conn = self._conn(segment_name)
        addr, size = c_uint64(), c_uint64()
        if not conn or self._lib.flagcxP2pEngineRemoteRegion(conn, 0, byref(addr), byref(size)):
            self._fail()
            return 0
        return addr.value

    # ---- transfers

    def _conn(self, session):
        conn = self._lib.flagcxP2pEngineGetConn(self._engine, session.encode())
        if not conn:
            self._fail()
        return conn

    def send_probe(self, peer_server_name):
        return 0 if self._conn(peer_server_name) else _FAILED

    @staticmethod
    def _arrays(buffers, peers, lengths):
        return array("Q", buffers), array("Q", peers), array("Q", lengths)

    def _sync(self, session, buffers, peers, lengths, write, notify=None):
        n = len(lengths)
        if len(buffers) != n or len(peers) != n:
            return self._fail("batch transfer: lists of different lengths")
        conn = self._conn(session)
        if not conn:
            return _FAILED
        a, b, c = self._arrays(buffers, peers, lengths)
        call = (self._lib.flagcxP2pRpcBatchWriteSync if write else
                self._lib.flagcxP2pRpcBatchReadSync)
        if n and call(conn, n, a.buffer_info()[0], b.buffer_info()[0], c.buffer_info()[0]):
            return self._fail()
        if notify is not None:
            name, msg = notify.name.encode(), notify.msg.encode()
            if self._lib.flagcxP2pEngineSendNotifV(conn, name, len(name), msg, len(msg)):
                return self._fail()
        return 0

    def _start(self, session, buffers, peers, lengths, write):
        n = len(lengths)
        if len(buffers) != n or len(peers) != n:
            return self._fail("batch transfer: lists of different lengths")
        conn = self._conn(session)
        if not conn:
            return _FAILED
        a, b, c = self._arrays(buffers, peers, lengths)
        xfer = c_uint64()
        if self._lib.flagcxP2pRpcBatchStart(conn, n, a.buffer_info()[0], b.buffer_info()[0],
                                            c.buffer_info()[0], int(write), byref(xfer)):
            return self._fail()
        with self._lock:
            batch = self._next_batch
            self._next_batch += 1
            self._batches[batch] = (conn, xfer.value)
        return batch

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode,
                      notify=None, transport_hint=""):
        return self._sync(target_hostname, [buffer], [peer_buffer_address], [length],
                          opcode == TransferOpcode.Write, notify)

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length,
                            transport_hint=""):
        return self._sync(target_hostname, [buffer], [peer_buffer_address], [length], True)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length,
                           transport_hint=""):
        return self._sync(target_hostname, [buffer], [peer_buffer_address], [length], False)

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode,
                            notify=None, transport_hint=""):
        return self._sync(target_hostname, buffers, peer_buffer_addresses, lengths,
                          opcode == TransferOpcode.Write, notify)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                  transport_hint=""):
        return self._sync(target_hostname, buffers, peer_buffer_addresses, lengths, True)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                 transport_hint=""):
        return self._sync(target_hostname, buffers, peer_buffer_addresses, lengths, False)

    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode,
                             transport_hint=""):
        return self._start(target_hostname, buffers, peer_buffer_addresses, lengths,
                           opcode == TransferOpcode.Write)

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                   transport_hint=""):
        return self._start(target_hostname, buffers, peer_buffer_addresses, lengths, True)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                  transport_hint=""):
        return self._start(target_hostname, buffers, peer_buffer_addresses, lengths, False)

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length,
                              transport_hint=""):
        return self._start(target_hostname, [buffer], [peer_buffer_address], [length], True)

    def get_batch_transfer_status(self, batch_ids):
        """Wait for all of them; 0 when every one succeeded. The ids are given back."""
        rc = 0
        for batch in batch_ids:
            with self._lock:
                entry = self._batches.pop(batch, None)
            if entry is None:
                rc = self._fail(f"batch {batch}: unknown")
            elif self._lib.flagcxP2pEngineXferWait(entry[0], entry[1], -1):
                rc = self._fail()
        return rc

    def transfer_check_status(self, batch_id):
        """1: done, 0: under way, -1: failed. An ended id is given back."""
        with self._lock:
            entry = self._batches.get(batch_id)
        if entry is None:
            return self._fail(f"batch {batch_id}: unknown")
        info = _libflagcx.XferInfo(size=ctypes.sizeof(_libflagcx.XferInfo))
        rc = self._lib.flagcxP2pEngineXferQuery(entry[0], entry[1], byref(info))
        if rc == 0 and info.state == _libflagcx.XFER_PENDING:
            return 0
        return 1 if self.get_batch_transfer_status([batch_id]) == 0 else _FAILED

    # ---- notifications

    def get_notifies(self):
        """Those that have come: TransferNotify objects."""
        out = []
        n = _libflagcx.Notif()
        while self._lib.flagcxP2pEngineGetNotifsV(self._engine, byref(n), 1) == 1:
            name = ctypes.string_at(n.name, n.name_len).decode(errors="replace")
            msg = ctypes.string_at(n.msg, n.msg_len).decode(errors="replace")
            self._lib.flagcxP2pNotifFree(byref(n))
            out.append(TransferNotify(name, msg))
        return out

    def wait_notifies(self, count, timeout):
        """At least count of them, or those that have come after timeout seconds."""
        out = []
        end = time.monotonic() + timeout
        while len(out) < count and time.monotonic() < end:
            out += self.get_notifies()
            if len(out) < count:
                time.sleep(0.001)
        return out
