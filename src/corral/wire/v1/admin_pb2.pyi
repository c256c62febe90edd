from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateJoinTokenRequest(_message.Message):
    __slots__ = ("node_id", "ttl_seconds", "replace")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    ttl_seconds: int
    replace: bool
    def __init__(self, node_id: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., replace: _Optional[bool] = ...) -> None: ...

class CreateJoinTokenResponse(_message.Message):
    __slots__ = ("token_id", "join_token", "expires_at_epoch_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_EPOCH_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    join_token: str
    expires_at_epoch_ms: int
    def __init__(self, token_id: _Optional[str] = ..., join_token: _Optional[str] = ..., expires_at_epoch_ms: _Optional[int] = ...) -> None: ...

class RevokeJoinTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeJoinTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJoinTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJoinTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[JoinTokenInfo]
    def __init__(self, tokens: _Optional[_Iterable[_Union[JoinTokenInfo, _Mapping]]] = ...) -> None: ...

class JoinTokenInfo(_message.Message):
    __slots__ = ("token_id", "node_id", "expires_at_epoch_ms", "expired")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_EPOCH_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    node_id: str
    expires_at_epoch_ms: int
    expired: bool
    def __init__(self, token_id: _Optional[str] = ..., node_id: _Optional[str] = ..., expires_at_epoch_ms: _Optional[int] = ..., expired: _Optional[bool] = ...) -> None: ...
