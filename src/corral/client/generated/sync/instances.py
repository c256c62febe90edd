"""Methods of `instances`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.answers import StreamMessage, UnknownData
from corral.client.bodies import Body, Source
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag, joined, waiting
from corral.client.streams import StreamOrder
from corral.client.sync_calls import Download, EventStream, SyncCalls


class Instances:
    """Operations of `/api/v1/instances`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        group: str | None = None,
        node: str | None = None,
        state: Sequence[str] | None = None,
        wanted: models.Wanted | None = None,
        live: bool | None = None,
        sort: Literal[
            "-created_at",
            "-group",
            "-id",
            "-memory_mb",
            "-node",
            "-players",
            "-restarts",
            "-started_at",
            "-state",
            "created_at",
            "group",
            "id",
            "memory_mb",
            "node",
            "players",
            "restarts",
            "started_at",
            "state",
        ]
        | None = None,
    ) -> models.InstancePage:
        """List instances.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Only instances on this node.
        - `state`: Only instances in this state; several, separated by commas: in one of these. Default: `()`.
        - `wanted`: Only instances of which this is wanted.
        - `live`: Only those that have not ended; false: all. Default: `false`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/instances`, permission `instances.read`.
        """
        return self._calls.call(
            Request[models.InstancePage](
                "GET",
                "/api/v1/instances",
                models.InstancePage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "group": group,
                    "node": node,
                    "state": state,
                    "wanted": wanted,
                    "live": live,
                    "sort": sort,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        group: str | None = None,
        node: str | None = None,
        state: Sequence[str] | None = None,
        wanted: models.Wanted | None = None,
        live: bool | None = None,
        sort: Literal[
            "-created_at",
            "-group",
            "-id",
            "-memory_mb",
            "-node",
            "-players",
            "-restarts",
            "-started_at",
            "-state",
            "created_at",
            "group",
            "id",
            "memory_mb",
            "node",
            "players",
            "restarts",
            "started_at",
            "state",
        ]
        | None = None,
    ) -> Iterator[models.Instance]:
        """List instances: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Only instances on this node.
        - `state`: Only instances in this state; several, separated by commas: in one of these. Default: `()`.
        - `wanted`: Only instances of which this is wanted.
        - `live`: Only those that have not ended; false: all. Default: `false`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/instances`, permission `instances.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit,
                ids=ids,
                q=q,
                group=group,
                node=node,
                state=state,
                wanted=wanted,
                live=live,
                sort=sort,
                cursor=position,
            )
        )

    def list_summaries(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        group: str | None = None,
        node: str | None = None,
        state: Sequence[str] | None = None,
        wanted: models.Wanted | None = None,
        live: bool | None = None,
        sort: Literal[
            "-created_at",
            "-group",
            "-id",
            "-memory_mb",
            "-node",
            "-players",
            "-restarts",
            "-started_at",
            "-state",
            "created_at",
            "group",
            "id",
            "memory_mb",
            "node",
            "players",
            "restarts",
            "started_at",
            "state",
        ]
        | None = None,
    ) -> models.InstanceSummaryPage:
        """List instances.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Only instances on this node.
        - `state`: Only instances in this state; several, separated by commas: in one of these. Default: `()`.
        - `wanted`: Only instances of which this is wanted.
        - `live`: Only those that have not ended; false: all. Default: `false`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/instances`, permission `instances.read`.
        """
        return self._calls.call(
            Request[models.InstanceSummaryPage](
                "GET",
                "/api/v1/instances",
                models.InstanceSummaryPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "group": group,
                    "node": node,
                    "state": state,
                    "wanted": wanted,
                    "live": live,
                    "sort": sort,
                    "view": "summary",
                },
            )
        )

    def all_summaries(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        group: str | None = None,
        node: str | None = None,
        state: Sequence[str] | None = None,
        wanted: models.Wanted | None = None,
        live: bool | None = None,
        sort: Literal[
            "-created_at",
            "-group",
            "-id",
            "-memory_mb",
            "-node",
            "-players",
            "-restarts",
            "-started_at",
            "-state",
            "created_at",
            "group",
            "id",
            "memory_mb",
            "node",
            "players",
            "restarts",
            "started_at",
            "state",
        ]
        | None = None,
    ) -> Iterator[models.InstanceSummary]:
        """List instances: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Only instances on this node.
        - `state`: Only instances in this state; several, separated by commas: in one of these. Default: `()`.
        - `wanted`: Only instances of which this is wanted.
        - `live`: Only those that have not ended; false: all. Default: `false`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/instances`, permission `instances.read`.
        """
        return self._calls.pages(
            lambda position: self.list_summaries(
                limit=limit,
                ids=ids,
                q=q,
                group=group,
                node=node,
                state=state,
                wanted=wanted,
                live=live,
                sort=sort,
                cursor=position,
            )
        )

    def create(
        self,
        *,
        group: str,
        wait: Literal["ready", "running"] | None = None,
        timeout: int | None = None,
        node: str | UnsetType | None = UNSET,
        variables: Mapping[str, str] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Start one more instance of a group.

        - `wait`: Answer when it is RUNNING, or when it is ready; a run that dies before it is ready is no longer waited for, also if its node restarts it.
        - `timeout`: How long to wait. Default: `30`.
        - `group`: Name of the group to which it belongs.
        - `node`: Only there.
        - `variables`: Above the group's own.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "POST",
                "/api/v1/instances",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                json={"group": group, "node": node, "variables": variables},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 30),
            )
        )

    def get(self, id: str) -> models.Instance:
        """Show an instance.

        - `id`: Id of the instance, such as `lobby-1`.

        `GET /api/v1/instances/{id}`, permission `instances.read`.
        """
        return self._calls.call(
            Request[models.Instance]("GET", f"/api/v1/instances/{segment(id)}", models.Instance)
        )

    def delete(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Forget an instance that has ended.

        - `id`: Id of the instance, such as `lobby-1`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/instances/{id}`, permission `instances.manage`.
        """
        self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/instances/{segment(id)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def update(
        self,
        id: str,
        *,
        host_address: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Change where an instance is reached, until it is started again.

        - `id`: Id of the instance, such as `lobby-1`.
        - `host_address`: Where it is reached, for proxies that ask the registry; empty: at the address of its node. It holds until the instance is started again.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/instances/{id}`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "PATCH",
                f"/api/v1/instances/{segment(id)}",
                models.Instance,
                json={"host_address": host_address},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def stop(
        self,
        id: str,
        *,
        wait: Literal["stopped"] | None = None,
        timeout: int | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Stop an instance by its group's ladder; its group keeps `min` of them all the same.

        - `id`: Id of the instance, such as `lobby-1`.
        - `wait`: Answer when it ended.
        - `timeout`: How long to wait. Default: `60`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/stop`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/instances/{segment(id)}/stop",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 60),
            )
        )

    def kill(
        self,
        id: str,
        *,
        wait: Literal["stopped"] | None = None,
        timeout: int | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Kill everything of an instance at once.

        - `id`: Id of the instance, such as `lobby-1`.
        - `wait`: Answer when it ended.
        - `timeout`: How long to wait. Default: `60`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/kill`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/instances/{segment(id)}/kill",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 60),
            )
        )

    def kill_dry_run(
        self,
        id: str,
        *,
        wait: Literal["stopped"] | None = None,
        timeout: int | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Kill everything of an instance at once.

        Answers what it would do, and does nothing.

        - `id`: Id of the instance, such as `lobby-1`.
        - `wait`: Answer when it ended.
        - `timeout`: How long to wait. Default: `60`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/instances/{id}/kill`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/instances/{segment(id)}/kill",
                models.DryRun,
                query={"wait": wait, "timeout": timeout, "dry_run": True},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
                waits=waiting(wait, timeout, 60),
            )
        )

    def restart(
        self,
        id: str,
        *,
        wait: Literal["ready", "running"] | None = None,
        timeout: int | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Stop an instance and start it again under its id.

        - `id`: Id of the instance, such as `lobby-1`.
        - `wait`: Answer when it is RUNNING, or when it is ready; a run that dies before it is ready is no longer waited for, also if its node restarts it.
        - `timeout`: How long to wait. Default: `30`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/restart`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/instances/{segment(id)}/restart",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 30),
            )
        )

    def command(self, id: str, *, command: str, idempotency_key: str | None = None) -> models.CommandTaken:
        """Put a line into an instance's input.

        - `id`: Id of the instance, such as `lobby-1`.
        - `command`: One line for the input of the instance, or a console command of a module; without the line's end.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/command`, permission `instances.command`.
        """
        return self._calls.call(
            Request[models.CommandTaken](
                "POST",
                f"/api/v1/instances/{segment(id)}/command",
                models.CommandTaken,
                json={"command": command},
                keyed=True,
                key=idempotency_key,
            )
        )

    def start(
        self,
        id: str,
        *,
        wait: Literal["ready", "running"] | None = None,
        timeout: int | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Start an instance that has ended again, under its id; one that runs is left as it is.

        - `id`: Id of the instance, such as `lobby-1`.
        - `wait`: Answer when it is RUNNING, or when it is ready; a run that dies before it is ready is no longer waited for, also if its node restarts it.
        - `timeout`: How long to wait. Default: `30`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/start`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/instances/{segment(id)}/start",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 30),
            )
        )

    def update_lifecycle(
        self,
        id: str,
        *,
        target: Literal["restart", "start", "stop"],
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Start, stop or restart an instance, by name of what it shall do.

        - `id`: Id of the instance, such as `lobby-1`.
        - `target`: What it shall do: `start`, `stop` or `restart`.
        - `reason`: The reason, kept in the audit and in the instance's record.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/instances/{id}/lifecycle`, permission `instances.manage`.
        """
        return self._calls.call(
            Request[models.Instance](
                "PATCH",
                f"/api/v1/instances/{segment(id)}/lifecycle",
                models.Instance,
                query={"target": target},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def plan(self, id: str, *, incarnation: int | None = None) -> models.PlanShape:
        """Show what an instance was started with.

        - `id`: Id of the instance, such as `lobby-1`.
        - `incarnation`: Which run; without it the present or last.

        `GET /api/v1/instances/{id}/plan`, permission `instances.read`.
        """
        return self._calls.call(
            Request[models.PlanShape](
                "GET",
                f"/api/v1/instances/{segment(id)}/plan",
                models.PlanShape,
                query={"incarnation": incarnation},
            )
        )

    def save(
        self,
        id: str,
        *,
        template: str,
        paths: Sequence[str],
        note: str | UnsetType = UNSET,
        merge: bool | UnsetType = UNSET,
        secret_names: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Save files of an instance as a new version of a template.

        - `id`: Id of the instance, such as `lobby-1`.
        - `template`: NAME or GROUP/NAME.
        - `paths`: Globs of the files to save.
        - `note`: A word on the new version, for people.
        - `merge`: Lay them over the template's files. Default: `false`.
        - `secret_names`: Put %NAME% in place of the values of secrets; else such files are refused. Default: `false`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/save`, permission `templates.manage`.
        """
        return self._calls.call(
            Request[models.ChangedTemplate](
                "POST",
                f"/api/v1/instances/{segment(id)}/save",
                models.ChangedTemplate,
                json={
                    "template": template,
                    "paths": paths,
                    "note": note,
                    "merge": merge,
                    "secret_names": secret_names,
                },
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def files(
        self,
        id: str,
        *,
        path: str | None = None,
        limit: int | None = None,
        depth: int | None = None,
        cursor: str | None = None,
        digests: bool | None = None,
    ) -> models.InstanceFiles:
        """List what lies in an instance's directory.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Only below this directory.
        - `limit`: Most entries of the answer. Default: `1000`.
        - `depth`: So many levels; 1: the directory alone. Default: `201`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `digests`: With digests of files up to 4 MiB. Default: `false`.

        `GET /api/v1/instances/{id}/files`, permission `instances.files`.
        """
        return self._calls.call(
            Request[models.InstanceFiles](
                "GET",
                f"/api/v1/instances/{segment(id)}/files",
                models.InstanceFiles,
                query={"path": path, "limit": limit, "depth": depth, "cursor": cursor, "digests": digests},
            )
        )

    def all_files(
        self,
        id: str,
        *,
        path: str | None = None,
        limit: int | None = None,
        depth: int | None = None,
        digests: bool | None = None,
    ) -> Iterator[models.InstanceFile]:
        """List what lies in an instance's directory: the items of all pages, each page read when it is needed.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Only below this directory.
        - `limit`: Most entries of the answer. Default: `1000`.
        - `depth`: So many levels; 1: the directory alone. Default: `201`.
        - `digests`: With digests of files up to 4 MiB. Default: `false`.

        `GET /api/v1/instances/{id}/files`, permission `instances.files`.
        """
        return self._calls.pages(
            lambda position: self.files(
                id, path=path, limit=limit, depth=depth, digests=digests, cursor=position
            )
        )

    def files_stat(self, id: str, *, path: str) -> models.InstanceFile:
        """Show one file of an instance, with its digest.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Path of the file, relative to the top and written with `/`.

        `GET /api/v1/instances/{id}/files/stat`, permission `instances.files`.
        """
        return self._calls.call(
            Request[models.InstanceFile](
                "GET",
                f"/api/v1/instances/{segment(id)}/files/stat",
                models.InstanceFile,
                query={"path": path},
            )
        )

    def files_content(
        self, id: str, *, path: str, offset: int | None = None, length: int | None = None
    ) -> Download:
        """Read a file of an instance, or a part of it.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Path of the file, relative to the top and written with `/`.
        - `offset`: First byte to read. Default: `0`.
        - `length`: Most bytes to read.

        `GET /api/v1/instances/{id}/files/content`, permission `instances.files`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/instances/{segment(id)}/files/content",
                query={"path": path, "offset": offset, "length": length},
                waits=UPLOAD_SECONDS,
            )
        )

    def put_files_content(
        self,
        id: str,
        content: Source,
        *,
        path: str,
        mode: Literal["444", "555", "644", "755"] | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> models.InstanceFileChange:
        """Write a file of an instance: the body is its content.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Path of the file, relative to the top and written with `/`.
        - `mode`: Without: as it was, or 644.
        - `content`: Bytes, a path, an open file, or pieces.
        - `if_match`: Only if the file still has this digest; `*`: if there is one.
        - `if_none_match`: `*`: only if there is none.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/instances/{id}/files/content`, permission `instances.files.write`.
        """
        return self._calls.call(
            Request[models.InstanceFileChange](
                "PUT",
                f"/api/v1/instances/{segment(id)}/files/content",
                models.InstanceFileChange,
                query={"path": path, "mode": mode},
                body=Body(content),
                content_type="application/octet-stream",
                headers={"If-Match": entity_tag(if_match), "If-None-Match": entity_tag(if_none_match)},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def files_archive(self, id: str, *, path: str | None = None) -> Download:
        """Download a directory of an instance as tar.gz.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: A directory; empty: all of it.

        `GET /api/v1/instances/{id}/files/archive`, permission `instances.files`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/instances/{segment(id)}/files/archive",
                query={"path": path},
                waits=UPLOAD_SECONDS,
            )
        )

    def files_origin(self, id: str, *, path: str) -> models.FileOrigin:
        """Show what a template has at the path of an instance's file.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: Path of the file, relative to the top and written with `/`.

        `GET /api/v1/instances/{id}/files/origin`, permission `instances.files`.
        """
        return self._calls.call(
            Request[models.FileOrigin](
                "GET",
                f"/api/v1/instances/{segment(id)}/files/origin",
                models.FileOrigin,
                query={"path": path},
            )
        )

    def files_rename(
        self,
        id: str,
        *,
        path: str,
        to: str,
        replace: bool | UnsetType = UNSET,
        digest: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InstanceFileChange:
        """Rename or move a file or directory of an instance.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: A file or directory.
        - `to`: Its new path; the directory of that exists.
        - `replace`: Replace a file that is there, by a file. Default: `false`.
        - `digest`: Only if the file has this SHA-256.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/files/rename`, permission `instances.files.write`.
        """
        return self._calls.call(
            Request[models.InstanceFileChange](
                "POST",
                f"/api/v1/instances/{segment(id)}/files/rename",
                models.InstanceFileChange,
                json={"path": path, "to": to, "replace": replace, "digest": digest},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def files_mkdir(
        self, id: str, *, path: str, idempotency_key: str | None = None
    ) -> models.InstanceFileChange:
        """Make a directory of an instance, and those above it.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: The directory; those above it are made as well.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/files/mkdir`, permission `instances.files.write`.
        """
        return self._calls.call(
            Request[models.InstanceFileChange](
                "POST",
                f"/api/v1/instances/{segment(id)}/files/mkdir",
                models.InstanceFileChange,
                json={"path": path},
                keyed=True,
                key=idempotency_key,
            )
        )

    def files_delete(
        self,
        id: str,
        *,
        path: str,
        recursive: bool | UnsetType = UNSET,
        digest: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InstanceFileChange:
        """Delete a file or directory of an instance.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: A file, a link itself, or a directory.
        - `recursive`: A directory with everything in it; else it has to be empty. Default: `false`.
        - `digest`: Only if the file has this SHA-256.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/files/delete`, permission `instances.files.write`.
        """
        return self._calls.call(
            Request[models.InstanceFileChange](
                "POST",
                f"/api/v1/instances/{segment(id)}/files/delete",
                models.InstanceFileChange,
                json={"path": path, "recursive": recursive, "digest": digest},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def files_unpack(
        self,
        id: str,
        *,
        path: str,
        to: str | UnsetType = UNSET,
        replace: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InstanceFileChange:
        """Unpack an archive that lies in an instance's directory.

        - `id`: Id of the instance, such as `lobby-1`.
        - `path`: A tar.gz, tar or zip in the instance's directory.
        - `to`: The directory to unpack into, made where it is missing; empty: the instance's directory.
        - `replace`: Replace files that are there; else nothing is unpacked when one is. Default: `false`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/instances/{id}/files/unpack`, permission `instances.files.write`.
        """
        return self._calls.call(
            Request[models.InstanceFileChange](
                "POST",
                f"/api/v1/instances/{segment(id)}/files/unpack",
                models.InstanceFileChange,
                json={"path": path, "to": to, "replace": replace},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def runs(self, id: str, *, limit: int | None = None, before: int | None = None) -> models.Runs:
        """List the runs of an instance, the newest first.

        - `id`: Id of the instance, such as `lobby-1`.
        - `limit`: Most runs of an answer. Default: `100`.
        - `before`: Only runs with lower numbers.

        `GET /api/v1/instances/{id}/runs`, permission `instances.read`.
        """
        return self._calls.call(
            Request[models.Runs](
                "GET",
                f"/api/v1/instances/{segment(id)}/runs",
                models.Runs,
                query={"limit": limit, "before": before},
            )
        )

    def all_runs(self, id: str, *, limit: int | None = None) -> Iterator[models.InstanceRun]:
        """List the runs of an instance, the newest first: the items of all pages, each page read when it is needed.

        - `id`: Id of the instance, such as `lobby-1`.
        - `limit`: Most runs of an answer. Default: `100`.

        `GET /api/v1/instances/{id}/runs`, permission `instances.read`.
        """
        return self._calls.pages(lambda position: self.runs(id, limit=limit, before=position))

    def console(
        self,
        id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        at: str | None = None,
        limit: int | None = None,
        incarnation: int | None = None,
        newest: bool | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> models.ConsolePage:
        """Read a console, from an offset on or its newest lines.

        - `id`: Id of the instance, such as `lobby-1`.
        - `after`: Byte offset to begin at.
        - `before`: The lines that end before this byte offset.
        - `at`: The lines around this time, of the run that there was then or of the one that is named.
        - `limit`: Most lines of a page. Default: `500`.
        - `incarnation`: Which run; without it the newest.
        - `newest`: The last lines instead; `after` is ignored. Default: `false`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.

        `GET /api/v1/instances/{id}/console`, permission `instances.console`.
        """
        return self._calls.call(
            Request[models.ConsolePage](
                "GET",
                f"/api/v1/instances/{segment(id)}/console",
                models.ConsolePage,
                query={
                    "after": after,
                    "before": before,
                    "at": at,
                    "limit": limit,
                    "incarnation": incarnation,
                    "newest": newest,
                    "since": since,
                    "until": until,
                },
            )
        )

    def console_search(
        self,
        id: str,
        *,
        pattern: str,
        after: int | None = None,
        before: int | None = None,
        newest: bool | None = None,
        limit: int | None = None,
        incarnation: int | None = None,
        runs: Literal["all", "one"] | None = None,
        cursor: str | None = None,
    ) -> models.ConsoleMatches:
        """Lines of a console that match a pattern, of one run or of all.

        - `id`: Id of the instance, such as `lobby-1`.
        - `pattern`: In RE2's syntax.
        - `after`: Byte offset to begin at. Default: `0`.
        - `before`: Search backwards from this byte offset.
        - `newest`: Search backwards from the end. Default: `false`.
        - `limit`: Most lines of a page. Default: `500`.
        - `incarnation`: Which run; without it the newest.
        - `runs`: `all`: one run after the other, from the oldest or with `newest` from the newest. Default: `one`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/instances/{id}/console/search`, permission `instances.console`.
        """
        return self._calls.call(
            Request[models.ConsoleMatches](
                "GET",
                f"/api/v1/instances/{segment(id)}/console/search",
                models.ConsoleMatches,
                query={
                    "pattern": pattern,
                    "after": after,
                    "before": before,
                    "newest": newest,
                    "limit": limit,
                    "incarnation": incarnation,
                    "runs": runs,
                    "cursor": cursor,
                },
            )
        )

    def all_console_search(
        self,
        id: str,
        *,
        pattern: str,
        after: int | None = None,
        before: int | None = None,
        newest: bool | None = None,
        limit: int | None = None,
        incarnation: int | None = None,
        runs: Literal["all", "one"] | None = None,
    ) -> Iterator[models.ConsoleMatch]:
        """Lines of a console that match a pattern, of one run or of all: the items of all pages, each page read when it is needed.

        - `id`: Id of the instance, such as `lobby-1`.
        - `pattern`: In RE2's syntax.
        - `after`: Byte offset to begin at. Default: `0`.
        - `before`: Search backwards from this byte offset.
        - `newest`: Search backwards from the end. Default: `false`.
        - `limit`: Most lines of a page. Default: `500`.
        - `incarnation`: Which run; without it the newest.
        - `runs`: `all`: one run after the other, from the oldest or with `newest` from the newest. Default: `one`.

        `GET /api/v1/instances/{id}/console/search`, permission `instances.console`.
        """
        return self._calls.pages(
            lambda position: self.console_search(
                id,
                pattern=pattern,
                after=after,
                before=before,
                newest=newest,
                limit=limit,
                incarnation=incarnation,
                runs=runs,
                cursor=position,
            )
        )

    def console_download(
        self, id: str, *, after: int | None = None, incarnation: int | None = None
    ) -> Download:
        """A console as it is, byte by byte.

        - `id`: Id of the instance, such as `lobby-1`.
        - `after`: Byte offset to begin at. Default: `0`.
        - `incarnation`: Which run; without it the newest.

        `GET /api/v1/instances/{id}/console/download`, permission `instances.console`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/instances/{segment(id)}/console/download",
                query={"after": after, "incarnation": incarnation},
            )
        )

    def console_stream(
        self,
        id: str,
        *,
        after: int | None = None,
        incarnation: int | None = None,
        format: Literal["blocks", "lines"] | None = None,
        resume: str | None = None,
        last_event_id: str | None = None,
    ) -> EventStream[
        StreamMessage[
            models.ConsolePage | models.ConsoleText | models.Run | models.End | models.InputLine | UnknownData
        ]
    ]:
        """Follow a console from run to run.

        - `id`: Id of the instance, such as `lobby-1`.
        - `after`: Begin with what came since there.
        - `incarnation`: Which run; without it the newest.
        - `format`: Pages of lines, or text as it comes with no work per line. Default: `lines`.
        - `resume`: As Last-Event-ID, for clients that cannot send headers.
        - `last_event_id`: `cursor` of a stream that was left.

        `GET /api/v1/instances/{id}/console/stream`, permission `instances.console`.
        """
        return self._calls.stream(
            StreamOrder[
                StreamMessage[
                    models.ConsolePage
                    | models.ConsoleText
                    | models.Run
                    | models.End
                    | models.InputLine
                    | UnknownData
                ]
            ](
                f"/api/v1/instances/{segment(id)}/console/stream",
                {
                    "page": models.ConsolePage,
                    "text": models.ConsoleText,
                    "gap": models.ConsolePage,
                    "late": models.ConsolePage,
                    "run": models.Run,
                    "end": models.End,
                    "command": models.InputLine,
                },
                query={"after": after, "incarnation": incarnation, "format": format, "resume": resume},
                last_id=last_event_id,
            )
        )

    def commands(
        self,
        id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> models.SentCommandPage:
        """List the lines that were sent to an instance, the newest first.

        - `id`: Id of the instance, such as `lobby-1`.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.

        `GET /api/v1/instances/{id}/commands`, permission `instances.console`.
        """
        return self._calls.call(
            Request[models.SentCommandPage](
                "GET",
                f"/api/v1/instances/{segment(id)}/commands",
                models.SentCommandPage,
                query={"limit": limit, "cursor": cursor, "since": since, "until": until},
            )
        )

    def all_commands(
        self, id: str, *, limit: int | None = None, since: str | None = None, until: str | None = None
    ) -> Iterator[models.SentCommand]:
        """List the lines that were sent to an instance, the newest first: the items of all pages, each page read when it is needed.

        - `id`: Id of the instance, such as `lobby-1`.
        - `limit`: Most items of a page. Default: `100`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.

        `GET /api/v1/instances/{id}/commands`, permission `instances.console`.
        """
        return self._calls.pages(
            lambda position: self.commands(id, limit=limit, since=since, until=until, cursor=position)
        )

    def why(self, id: str) -> models.WhyShape:
        """Why an instance is as it is.

        - `id`: Id of the instance, such as `lobby-1`.

        `GET /api/v1/instances/{id}/why`, permission `decisions.read`.
        """
        return self._calls.call(
            Request[models.WhyShape]("GET", f"/api/v1/instances/{segment(id)}/why", models.WhyShape)
        )
