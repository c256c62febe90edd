from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstanceCategory(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTANCE_CATEGORY_UNSPECIFIED: _ClassVar[InstanceCategory]
    INSTANCE_CATEGORY_SERVER: _ClassVar[InstanceCategory]
    INSTANCE_CATEGORY_PROXY: _ClassVar[InstanceCategory]

class ConfigFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_FORMAT_UNSPECIFIED: _ClassVar[ConfigFormat]
    CONFIG_FORMAT_PAPER: _ClassVar[ConfigFormat]
    CONFIG_FORMAT_SPIGOT: _ClassVar[ConfigFormat]
    CONFIG_FORMAT_VELOCITY: _ClassVar[ConfigFormat]
    CONFIG_FORMAT_BUNGEECORD: _ClassVar[ConfigFormat]
    CONFIG_FORMAT_GEYSER: _ClassVar[ConfigFormat]

class ConfigPatchOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_PATCH_OP_SET: _ClassVar[ConfigPatchOp]
    CONFIG_PATCH_OP_REPLACE: _ClassVar[ConfigPatchOp]
    CONFIG_PATCH_OP_REGEX: _ClassVar[ConfigPatchOp]
INSTANCE_CATEGORY_UNSPECIFIED: InstanceCategory
INSTANCE_CATEGORY_SERVER: InstanceCategory
INSTANCE_CATEGORY_PROXY: InstanceCategory
CONFIG_FORMAT_UNSPECIFIED: ConfigFormat
CONFIG_FORMAT_PAPER: ConfigFormat
CONFIG_FORMAT_SPIGOT: ConfigFormat
CONFIG_FORMAT_VELOCITY: ConfigFormat
CONFIG_FORMAT_BUNGEECORD: ConfigFormat
CONFIG_FORMAT_GEYSER: ConfigFormat
CONFIG_PATCH_OP_SET: ConfigPatchOp
CONFIG_PATCH_OP_REPLACE: ConfigPatchOp
CONFIG_PATCH_OP_REGEX: ConfigPatchOp

class CompositionPlan(_message.Message):
    __slots__ = ("plan_hash", "runtime", "templates", "extensions", "config_patches", "isolation", "canonical_json")
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_PATCHES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    CANONICAL_JSON_FIELD_NUMBER: _ClassVar[int]
    plan_hash: str
    runtime: RuntimeArtifact
    templates: _containers.RepeatedCompositeFieldContainer[TemplateRef]
    extensions: _containers.RepeatedCompositeFieldContainer[ExtensionArtifact]
    config_patches: _containers.RepeatedCompositeFieldContainer[ConfigPatch]
    isolation: RuntimeIsolation
    canonical_json: bytes
    def __init__(self, plan_hash: _Optional[str] = ..., runtime: _Optional[_Union[RuntimeArtifact, _Mapping]] = ..., templates: _Optional[_Iterable[_Union[TemplateRef, _Mapping]]] = ..., extensions: _Optional[_Iterable[_Union[ExtensionArtifact, _Mapping]]] = ..., config_patches: _Optional[_Iterable[_Union[ConfigPatch, _Mapping]]] = ..., isolation: _Optional[_Union[RuntimeIsolation, _Mapping]] = ..., canonical_json: _Optional[bytes] = ...) -> None: ...

class RuntimeArtifact(_message.Message):
    __slots__ = ("jar_file", "download_url", "sha256", "platform", "platform_version", "category", "config_format")
    JAR_FILE_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_URL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_VERSION_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FORMAT_FIELD_NUMBER: _ClassVar[int]
    jar_file: str
    download_url: str
    sha256: str
    platform: str
    platform_version: str
    category: InstanceCategory
    config_format: ConfigFormat
    def __init__(self, jar_file: _Optional[str] = ..., download_url: _Optional[str] = ..., sha256: _Optional[str] = ..., platform: _Optional[str] = ..., platform_version: _Optional[str] = ..., category: _Optional[_Union[InstanceCategory, str]] = ..., config_format: _Optional[_Union[ConfigFormat, str]] = ...) -> None: ...

class TemplateRef(_message.Message):
    __slots__ = ("name", "hash")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    name: str
    hash: str
    def __init__(self, name: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class ExtensionArtifact(_message.Message):
    __slots__ = ("module_id", "extension_id", "variant_id", "file_name", "download_url", "sha256", "install_path")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_ID_FIELD_NUMBER: _ClassVar[int]
    VARIANT_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_URL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    INSTALL_PATH_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    extension_id: str
    variant_id: str
    file_name: str
    download_url: str
    sha256: str
    install_path: str
    def __init__(self, module_id: _Optional[str] = ..., extension_id: _Optional[str] = ..., variant_id: _Optional[str] = ..., file_name: _Optional[str] = ..., download_url: _Optional[str] = ..., sha256: _Optional[str] = ..., install_path: _Optional[str] = ...) -> None: ...

class ConfigPatch(_message.Message):
    __slots__ = ("file", "key", "value", "op")
    FILE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    file: str
    key: str
    value: str
    op: ConfigPatchOp
    def __init__(self, file: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ..., op: _Optional[_Union[ConfigPatchOp, str]] = ...) -> None: ...

class RuntimeIsolation(_message.Message):
    __slots__ = ("cpu_reservation", "disk_reservation_mb")
    CPU_RESERVATION_FIELD_NUMBER: _ClassVar[int]
    DISK_RESERVATION_MB_FIELD_NUMBER: _ClassVar[int]
    cpu_reservation: float
    disk_reservation_mb: int
    def __init__(self, cpu_reservation: _Optional[float] = ..., disk_reservation_mb: _Optional[int] = ...) -> None: ...

class TemplateRequest(_message.Message):
    __slots__ = ("template_name", "known_hash", "wanted_hash")
    TEMPLATE_NAME_FIELD_NUMBER: _ClassVar[int]
    KNOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    WANTED_HASH_FIELD_NUMBER: _ClassVar[int]
    template_name: str
    known_hash: str
    wanted_hash: str
    def __init__(self, template_name: _Optional[str] = ..., known_hash: _Optional[str] = ..., wanted_hash: _Optional[str] = ...) -> None: ...

class TemplateData(_message.Message):
    __slots__ = ("template_name", "hash", "tar_gz", "offer", "delta")
    TEMPLATE_NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    TAR_GZ_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    template_name: str
    hash: str
    tar_gz: bytes
    offer: DataOffer
    delta: bytes
    def __init__(self, template_name: _Optional[str] = ..., hash: _Optional[str] = ..., tar_gz: _Optional[bytes] = ..., offer: _Optional[_Union[DataOffer, _Mapping]] = ..., delta: _Optional[bytes] = ...) -> None: ...

class TemplateUpToDate(_message.Message):
    __slots__ = ("template_name", "hash")
    TEMPLATE_NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    template_name: str
    hash: str
    def __init__(self, template_name: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class TemplateUnavailable(_message.Message):
    __slots__ = ("template_name", "hash", "error_code", "error_message")
    TEMPLATE_NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    template_name: str
    hash: str
    error_code: str
    error_message: str
    def __init__(self, template_name: _Optional[str] = ..., hash: _Optional[str] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class DataOffer(_message.Message):
    __slots__ = ("digest", "size_bytes", "kind")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    kind: str
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class PreWarmCache(_message.Message):
    __slots__ = ("entries", "templates", "request_id")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[PreWarmEntry]
    templates: _containers.RepeatedCompositeFieldContainer[TemplateRef]
    request_id: str
    def __init__(self, entries: _Optional[_Iterable[_Union[PreWarmEntry, _Mapping]]] = ..., templates: _Optional[_Iterable[_Union[TemplateRef, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class PreWarmEntry(_message.Message):
    __slots__ = ("platform", "platform_version", "config_format", "jar_file", "download_url", "sha256")
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FORMAT_FIELD_NUMBER: _ClassVar[int]
    JAR_FILE_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_URL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    platform: str
    platform_version: str
    config_format: ConfigFormat
    jar_file: str
    download_url: str
    sha256: str
    def __init__(self, platform: _Optional[str] = ..., platform_version: _Optional[str] = ..., config_format: _Optional[_Union[ConfigFormat, str]] = ..., jar_file: _Optional[str] = ..., download_url: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class RequestCacheStatus(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class CacheStatus(_message.Message):
    __slots__ = ("templates", "jars", "bootstraps", "total_size_bytes", "request_id", "failures", "quota_bytes")
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    JARS_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAPS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    templates: _containers.RepeatedCompositeFieldContainer[TemplateCacheEntry]
    jars: _containers.RepeatedCompositeFieldContainer[JarCacheEntry]
    bootstraps: _containers.RepeatedCompositeFieldContainer[BootstrapCacheEntry]
    total_size_bytes: int
    request_id: str
    failures: _containers.RepeatedCompositeFieldContainer[CacheFailure]
    quota_bytes: int
    def __init__(self, templates: _Optional[_Iterable[_Union[TemplateCacheEntry, _Mapping]]] = ..., jars: _Optional[_Iterable[_Union[JarCacheEntry, _Mapping]]] = ..., bootstraps: _Optional[_Iterable[_Union[BootstrapCacheEntry, _Mapping]]] = ..., total_size_bytes: _Optional[int] = ..., request_id: _Optional[str] = ..., failures: _Optional[_Iterable[_Union[CacheFailure, _Mapping]]] = ..., quota_bytes: _Optional[int] = ...) -> None: ...

class CacheFailure(_message.Message):
    __slots__ = ("subject", "error_code", "error_message")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    error_code: str
    error_message: str
    def __init__(self, subject: _Optional[str] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class TemplateCacheEntry(_message.Message):
    __slots__ = ("name", "hash", "size_bytes", "last_used_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    hash: str
    size_bytes: int
    last_used_ms: int
    def __init__(self, name: _Optional[str] = ..., hash: _Optional[str] = ..., size_bytes: _Optional[int] = ..., last_used_ms: _Optional[int] = ...) -> None: ...

class JarCacheEntry(_message.Message):
    __slots__ = ("platform", "version", "jar_file", "size_bytes", "sha256", "cached_at_ms")
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JAR_FILE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    CACHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    platform: str
    version: str
    jar_file: str
    size_bytes: int
    sha256: str
    cached_at_ms: int
    def __init__(self, platform: _Optional[str] = ..., version: _Optional[str] = ..., jar_file: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., cached_at_ms: _Optional[int] = ...) -> None: ...

class BootstrapCacheEntry(_message.Message):
    __slots__ = ("config_format", "version", "has_cds", "size_bytes")
    CONFIG_FORMAT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HAS_CDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    config_format: ConfigFormat
    version: str
    has_cds: bool
    size_bytes: int
    def __init__(self, config_format: _Optional[_Union[ConfigFormat, str]] = ..., version: _Optional[str] = ..., has_cds: _Optional[bool] = ..., size_bytes: _Optional[int] = ...) -> None: ...
