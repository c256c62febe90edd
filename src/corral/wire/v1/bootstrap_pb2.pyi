from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ExchangeJoinTokenRequest(_message.Message):
    __slots__ = ("join_token", "node_id", "csr_pem", "machine_id")
    JOIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    join_token: str
    node_id: str
    csr_pem: bytes
    machine_id: str
    def __init__(self, join_token: _Optional[str] = ..., node_id: _Optional[str] = ..., csr_pem: _Optional[bytes] = ..., machine_id: _Optional[str] = ...) -> None: ...

class ExchangeJoinTokenResponse(_message.Message):
    __slots__ = ("pkcs12", "pkcs12_password", "ca_certificate_pem", "cli_token", "certificate_pem", "node_id", "cluster_id", "controller_grpc_addrs")
    PKCS12_FIELD_NUMBER: _ClassVar[int]
    PKCS12_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    CA_CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CLI_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_GRPC_ADDRS_FIELD_NUMBER: _ClassVar[int]
    pkcs12: bytes
    pkcs12_password: str
    ca_certificate_pem: bytes
    cli_token: str
    certificate_pem: bytes
    node_id: str
    cluster_id: str
    controller_grpc_addrs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pkcs12: _Optional[bytes] = ..., pkcs12_password: _Optional[str] = ..., ca_certificate_pem: _Optional[bytes] = ..., cli_token: _Optional[str] = ..., certificate_pem: _Optional[bytes] = ..., node_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., controller_grpc_addrs: _Optional[_Iterable[str]] = ...) -> None: ...
