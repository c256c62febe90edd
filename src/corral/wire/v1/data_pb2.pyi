from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchMessage(_message.Message):
    __slots__ = ("open", "credit")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    open: FetchOpen
    credit: Credit
    def __init__(self, open: _Optional[_Union[FetchOpen, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class FetchOpen(_message.Message):
    __slots__ = ("kind", "digest", "offset", "credit", "digests", "transfer_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    digest: str
    offset: int
    credit: int
    digests: _containers.RepeatedScalarFieldContainer[str]
    transfer_id: str
    def __init__(self, kind: _Optional[str] = ..., digest: _Optional[str] = ..., offset: _Optional[int] = ..., credit: _Optional[int] = ..., digests: _Optional[_Iterable[str]] = ..., transfer_id: _Optional[str] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class DataChunk(_message.Message):
    __slots__ = ("offset", "data", "total_size_bytes", "last")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    total_size_bytes: int
    last: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., total_size_bytes: _Optional[int] = ..., last: _Optional[bool] = ...) -> None: ...

class PushMessage(_message.Message):
    __slots__ = ("open", "chunk")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    open: PushOpen
    chunk: DataChunk
    def __init__(self, open: _Optional[_Union[PushOpen, _Mapping]] = ..., chunk: _Optional[_Union[DataChunk, _Mapping]] = ...) -> None: ...

class PushOpen(_message.Message):
    __slots__ = ("transfer_id", "digest", "size_bytes", "left_out")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    digest: str
    size_bytes: int
    left_out: int
    def __init__(self, transfer_id: _Optional[str] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., left_out: _Optional[int] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("accepted", "credit", "stored")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    accepted: PushAccepted
    credit: Credit
    stored: PushStored
    def __init__(self, accepted: _Optional[_Union[PushAccepted, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., stored: _Optional[_Union[PushStored, _Mapping]] = ...) -> None: ...

class PushAccepted(_message.Message):
    __slots__ = ("offset", "credit")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    credit: int
    def __init__(self, offset: _Optional[int] = ..., credit: _Optional[int] = ...) -> None: ...

class PushStored(_message.Message):
    __slots__ = ("digest", "size_bytes")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...
