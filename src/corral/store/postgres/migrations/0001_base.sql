-- Text is compared byte by byte (collation "C"), so that orders are the same as in SQLite.

-- Documents. A removed one stays as a tombstone (body is null) until it is trimmed. There is no
-- index on the revision, on purpose: it would change with every write, and only rows whose indexed
-- columns stay the same are updated in place. What is read by revision (`changes`, trimming) scans.
create table document (
    collection text collate "C" not null,
    id text collate "C" not null,
    revision bigint not null,
    body bytea,
    primary key (collection, id)
) with (fillfactor = 70);

-- The event log. All times are given by the writer; no clock of the database is ever used.
create table event (
    sequence bigint primary key,
    epoch bigint not null,
    type text not null,
    subject text not null,
    at timestamptz not null,
    data bytea not null
);

create table entry (
    number bigint primary key,
    journal text collate "C" not null,
    at timestamptz not null,
    body bytea not null
);
create index entry_journal on entry (journal, number);

-- The end of the log, and how the last batch ended: written in that batch's own transaction.
-- Single rows that change all the time get a page of their own to be updated in place.
create table head (
    one boolean primary key default true check (one),
    commit_number bigint not null,
    sequence bigint not null,
    event_epoch bigint not null,
    entry bigint not null,
    batch text not null,
    outcome text not null
) with (fillfactor = 10);
insert into head (commit_number, sequence, event_epoch, entry, batch, outcome) values (0, 0, 0, 0, '', '');

-- How far the log was trimmed: the last event, and the last tombstone's revision.
create table trimmed (
    one boolean primary key default true check (one),
    sequence bigint not null,
    event_epoch bigint not null,
    tombstone bigint not null
) with (fillfactor = 10);
insert into trimmed (sequence, event_epoch, tombstone) values (0, 0, 0);

-- The fence. It moves only when leadership is taken; the lease is another row, so that a
-- renewal never waits behind a write.
create table leader (
    one boolean primary key default true check (one),
    epoch bigint not null
) with (fillfactor = 10);
insert into leader (epoch) values (0);

create table lease (
    name text collate "C" primary key,
    holder text not null,
    epoch bigint not null,
    counter bigint not null,
    info text not null
) with (fillfactor = 10);

-- Blobs: visible when there is a row in `blob`. The chunks of an upload under way belong to a
-- number on which the uploader's session holds an advisory lock.
create table blob (
    digest text collate "C" primary key,
    size bigint not null,
    upload bigint not null unique
);
create table blob_chunk (
    upload bigint not null,
    place int not null,
    content bytea not null,
    primary key (upload, place)
);
alter table blob_chunk alter column content set storage external;


-- Every authoritative transaction begins here. The share lock makes a take-over wait for this
-- transaction, or this transaction see the take-over: never neither. SQLSTATE CRF01 is "fenced".
create function corral_check_fence(held bigint) returns void language plpgsql as $$
declare
    fence bigint;
begin
    select epoch into strict fence from leader for share;
    if fence <> held then
        raise exception using errcode = 'CRF01', message = 'fenced', detail = fence::text;
    end if;
end $$;


-- One batch in one call: fence, compare-and-set, documents, events, entries, head. Arrays hold
-- one element a row; `*_place` is the transaction a row belongs to, counted from 1. Returns the
-- outcome as JSON, the same text that stays in the head row.
create function corral_commit(
    held bigint, batch_name text, batch_at timestamptz, transactions int,
    write_place int[], write_collection text[], write_id text[], write_body bytea[], write_expect bigint[],
    event_place int[], event_type text[], event_subject text[], event_data bytea[],
    entry_place int[], entry_journal text[], entry_body bytea[]
) returns text language plpgsql as $$
declare
    before head%rowtype;
    refused jsonb := '[]';
    refused_places int[] := '{}';
    numbers bigint[] := array_fill(0::bigint, array[transactions]);
    number bigint;
    new_events bigint := 0;
    new_entries bigint := 0;
    result text;
begin
    perform corral_check_fence(held);
    select * into strict before from head for update;

    if exists (
        select from unnest(write_collection, write_id, write_expect) as w (collection, id, expect)
        left join document d on d.collection = w.collection and d.id = w.id and d.body is not null
        where w.expect <> coalesce(d.revision, 0)
    ) then
        select jsonb_agg(jsonb_build_array(place - 1, jsonb_build_object(
                   'collection', collection, 'id', id, 'expect', expect, 'found', actual)) order by place),
               array_agg(place)
        into refused, refused_places
        from (
            select distinct on (w.place) w.place, w.collection, w.id, w.expect, coalesce(d.revision, 0) as actual
            from unnest(write_place, write_collection, write_id, write_expect)
                with ordinality as w (place, collection, id, expect, position)
            left join document d
                on d.collection = w.collection and d.id = w.id and d.body is not null
            where w.expect <> coalesce(d.revision, 0)
            order by w.place, w.position
        ) as mismatch;
    end if;

    -- Accepted transactions are numbered in their order; 0 marks a refused one.
    number := before.commit_number;
    for place in 1 .. transactions loop
        if not place = any (refused_places) then
            number := number + 1;
            numbers[place] := number;
        end if;
    end loop;

    insert into document as d (collection, id, revision, body)
        select w.collection, w.id, numbers[w.place], w.body
        from unnest(write_place, write_collection, write_id, write_body) as w (place, collection, id, body)
        where numbers[w.place] > 0
        on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body;

    if array_length(event_place, 1) > 0 then
        insert into event (sequence, epoch, type, subject, at, data)
            select before.sequence + row_number() over (order by e.position),
                   held, e.type, e.subject, batch_at, e.data
            from unnest(event_place, event_type, event_subject, event_data)
                with ordinality as e (place, type, subject, data, position)
            where numbers[e.place] > 0;
        get diagnostics new_events = row_count;
    end if;

    if array_length(entry_place, 1) > 0 then
        insert into entry (number, journal, at, body)
            select before.entry + row_number() over (order by e.position), e.journal, batch_at, e.body
            from unnest(entry_place, entry_journal, entry_body)
                with ordinality as e (place, journal, body, position)
            where numbers[e.place] > 0;
        get diagnostics new_entries = row_count;
    end if;

    result := json_build_object(
        'before', json_build_object(
            'commit', before.commit_number, 'sequence', before.sequence, 'entry', before.entry,
            'epoch', held, 'batch', before.batch, 'event_epoch', before.event_epoch),
        'transactions', transactions, 'refused', refused);
    update head set
        commit_number = number,
        sequence = before.sequence + new_events,
        event_epoch = case when new_events > 0 then held else before.event_epoch end,
        entry = before.entry + new_entries,
        batch = batch_name,
        outcome = result;
    return result;
end $$;


-- Drop the oldest rows first, at most `most` in all; returns how many.
create function corral_trim(
    held bigint, events_through bigint, tombstones_through bigint,
    journals text[], journals_through bigint[], most int
) returns int language plpgsql as $$
declare
    dropped int := 0;
    rows int;
    last bigint;
begin
    perform corral_check_fence(held);

    select max(sequence) into last
    from (select sequence from event where sequence <= events_through order by sequence limit most) as oldest;
    if last is not null then
        update trimmed set sequence = last, event_epoch = (select epoch from event e where e.sequence = last);
        delete from event where sequence <= last;
        get diagnostics dropped = row_count;
    end if;

    select max(revision) into last
    from (select revision from document where body is null and revision <= tombstones_through
          order by revision limit most - dropped) as oldest;
    if last is not null then
        update trimmed set tombstone = last;
        delete from document where body is null and revision <= last;
        get diagnostics rows = row_count;
        dropped := dropped + rows;
    end if;

    for i in 1 .. coalesce(array_length(journals, 1), 0) loop
        exit when dropped >= most;
        delete from entry where number in (
            select number from entry where journal = journals[i] and number <= journals_through[i]
            order by number limit most - dropped);
        get diagnostics rows = row_count;
        dropped := dropped + rows;
    end loop;
    return dropped;
end $$;


-- Move the fence. Writers of older epochs are terminated first: one that was stopped inside a
-- transaction holds its share lock for as long as its connection lives. Their names are
-- `corral-writer:EPOCH:TOKEN`. Where we may not terminate, the update waits for them instead.
create function corral_move_fence(new_epoch bigint) returns void language plpgsql as $$
declare
    older int;
begin
    for older in
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
            and application_name ~ '^corral-writer:[0-9]{1,19}:'
            and split_part(application_name, ':', 2)::numeric < new_epoch
    loop
        begin
            perform pg_terminate_backend(older);
        exception when insufficient_privilege then
            raise warning 'cannot terminate back end % of an older epoch', older;
        end;
    end loop;
    update leader set epoch = new_epoch;
end $$;


-- Take a lease if it still is as it was seen; returns its new epoch, or null. The advisory lock
-- makes takers follow one another, so that each epoch is greater than any before.
create function corral_take_lease(
    lease_name text, new_holder text, new_info text, seen_holder text, seen_epoch bigint, seen_counter bigint
) returns bigint language plpgsql as $$
declare
    new_epoch bigint;
begin
    perform pg_advisory_xact_lock(4859229450158239);
    select greatest((select max(epoch) from lease), (select epoch from leader)) + 1 into new_epoch;
    if seen_epoch is null then
        insert into lease (name, holder, epoch, counter, info)
            values (lease_name, new_holder, new_epoch, 1, new_info)
            on conflict (name) do nothing;
    else
        update lease set holder = new_holder, epoch = new_epoch, counter = 1, info = new_info
            where name = lease_name
                and holder = seen_holder and epoch = seen_epoch and counter = seen_counter;
    end if;
    if not found then
        return null;
    end if;
    if lease_name = 'leader' then
        perform corral_move_fence(new_epoch);
    end if;
    return new_epoch;
end $$;


-- Lift lease and fence together, as the holder; returns the new counter, or null.
create function corral_raise_epoch(lease_name text, its_holder text, its_epoch bigint, lift bigint)
returns bigint language plpgsql as $$
declare
    new_counter bigint;
begin
    perform pg_advisory_xact_lock(4859229450158239);
    update lease set epoch = epoch + lift, counter = counter + 1
        where name = lease_name and holder = its_holder and epoch = its_epoch
        returning counter into new_counter;
    if found and lease_name = 'leader' then
        update leader set epoch = its_epoch + lift;
    end if;
    return new_counter;
end $$;
