-- The hash chain of the audit: a row for each entry of the journal that is chained. Entries from before have none.
create table chain_link (
    number bigint primary key,
    previous bytea not null,
    hash bytea not null
);

-- The first and the newest entry of the chain; 0 and null: none.
create table chain (
    one boolean primary key default true check (one),
    first bigint not null,
    number bigint not null,
    hash bytea
) with (fillfactor = 10);
insert into chain (first, number) values (0, 0);

-- The last entry that retention removed. A row of its own: no batch waits for a purge.
create table chain_removed (
    one boolean primary key default true check (one),
    number bigint not null,
    hash bytea
) with (fillfactor = 10);
insert into chain_removed (number) values (0);


-- Chain the audit's entries from this number on, in the transaction that added them; the head row is locked. The same
-- bytes as `entry_hash` of domain/audit_chain.py.
create function corral_chain(from_number bigint) returns void language plpgsql as $$
declare
    tip chain%rowtype;
    link bytea;
    added record;
begin
    select * into strict tip from chain for update;
    for added in
        select number, at, body from entry where journal = 'audit' and number >= from_number order by number
    loop
        link := coalesce(tip.hash, decode(repeat('00', 32), 'hex'));
        tip.hash := sha256(
            'corral.audit.1'::bytea || '\x00'::bytea || link || int8send(added.number)
            || int8send((extract(epoch from added.at) * 1000000)::bigint) || added.body);
        tip.number := added.number;
        if tip.first = 0 then
            tip.first := added.number;
        end if;
        insert into chain_link (number, previous, hash) values (added.number, link, tip.hash);
    end loop;
    update chain set first = tip.first, number = tip.number, hash = tip.hash;
end $$;


-- As before, and the audit's entries are chained. Arguments and outcome are as before, so that a controller of the
-- version before can use it.
create or replace function corral_commit(
    held bigint, batch_name text, batch_at timestamptz, transactions int,
    write_place int[], write_collection text[], write_id text[], write_body bytea[], write_expect bigint[],
    event_place int[], event_type text[], event_subject text[], event_data bytea[],
    entry_place int[], entry_journal text[], entry_body bytea[]
) returns text language plpgsql as $$
declare
    before head%rowtype;
    refused jsonb := '[]';
    refused_places int[] := '{}';
    numbers bigint[];
    number bigint;
    writes int := cardinality(write_place);
    written int := 0;
    rows int;
    result text;
begin
    perform corral_check_fence(held);
    select * into strict before from head for update;
    number := before.commit_number + transactions;

    -- As if nothing were refused. A row that this batch has written is not written again: a batch that names
    -- a document twice ends below, where every expectation is compared with the state before the batch.
    begin
        update document d set revision = before.commit_number + w.place, body = w.body
            from unnest(write_place, write_collection, write_id, write_body, write_expect)
                as w (place, collection, id, body, expect)
            where w.expect > 0 and d.collection = w.collection and d.id = w.id
                and d.revision = w.expect and d.body is not null;
        get diagnostics written = row_count;

        if written < writes then
            insert into document as d (collection, id, revision, body)
                select w.collection, w.id, before.commit_number + w.place, w.body
                from unnest(write_place, write_collection, write_id, write_body, write_expect)
                    as w (place, collection, id, body, expect)
                where w.expect = 0
                on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body
                    where d.body is null and d.revision <= before.commit_number;
            get diagnostics rows = row_count;
            written := written + rows;
        end if;

        if written < writes then
            insert into document as d (collection, id, revision, body)
                select w.collection, w.id, before.commit_number + w.place, w.body
                from unnest(write_place, write_collection, write_id, write_body, write_expect)
                    as w (place, collection, id, body, expect)
                where w.expect is null
                on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body
                    where d.revision <= before.commit_number;
            get diagnostics rows = row_count;
            written := written + rows;
        end if;

        if written < writes then
            raise exception using errcode = 'CRF02', message = 'not all rows were as expected';
        end if;
    exception when sqlstate 'CRF02' or cardinality_violation then
        written := -1;
    end;

    if written < 0 then
        select coalesce(jsonb_agg(jsonb_build_array(place - 1, jsonb_build_object(
                   'collection', collection, 'id', id, 'expect', expect, 'found', actual)) order by place), '[]'),
               coalesce(array_agg(place), '{}')
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

        -- Accepted transactions are numbered in their order; 0 marks a refused one.
        numbers := array_fill(0::bigint, array[transactions]);
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

        -- What is left of the events and entries below are those of accepted transactions.
        select coalesce(array_agg(e.type order by e.position), '{}'),
               coalesce(array_agg(e.subject order by e.position), '{}'),
               coalesce(array_agg(e.data order by e.position), '{}')
        into event_type, event_subject, event_data
        from unnest(event_place, event_type, event_subject, event_data)
            with ordinality as e (place, type, subject, data, position)
        where numbers[e.place] > 0;
        select coalesce(array_agg(e.journal order by e.position), '{}'),
               coalesce(array_agg(e.body order by e.position), '{}')
        into entry_journal, entry_body
        from unnest(entry_place, entry_journal, entry_body) with ordinality as e (place, journal, body, position)
        where numbers[e.place] > 0;
    end if;

    if cardinality(event_type) > 0 then
        insert into event (sequence, epoch, type, subject, at, data)
            select before.sequence + e.position, held, e.type, e.subject, batch_at, e.data
            from unnest(event_type, event_subject, event_data)
                with ordinality as e (type, subject, data, position);
    end if;

    if cardinality(entry_journal) > 0 then
        insert into entry (number, journal, at, body)
            select before.entry + e.position, e.journal, batch_at, e.body
            from unnest(entry_journal, entry_body) with ordinality as e (journal, body, position);
    end if;

    if 'audit' = any (entry_journal) then
        perform corral_chain(before.entry + 1);
    end if;

    result := json_build_object(
        'before', json_build_object(
            'commit', before.commit_number, 'sequence', before.sequence, 'entry', before.entry,
            'epoch', held, 'batch', before.batch, 'event_epoch', before.event_epoch),
        'transactions', transactions, 'refused', refused);
    update head set
        commit_number = number,
        sequence = before.sequence + cardinality(event_type),
        event_epoch = case when cardinality(event_type) > 0 then held else before.event_epoch end,
        entry = before.entry + cardinality(entry_journal),
        batch = batch_name,
        outcome = result;
    return result;
end $$;


-- As before; of the audit, the last entry that is removed stays known.
create or replace function corral_trim(
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
        if journals[i] = 'audit' then
            select max(number) into last
            from (select number from entry where journal = 'audit' and number <= journals_through[i]
                  order by number limit most - dropped) as oldest;
            update chain_removed set number = last, hash = (select hash from chain_link l where l.number = last)
                where last is not null;
            delete from chain_link where number <= last;
        end if;
        delete from entry where number in (
            select number from entry where journal = journals[i] and number <= journals_through[i]
            order by number limit most - dropped);
        get diagnostics rows = row_count;
        dropped := dropped + rows;
    end loop;
    return dropped;
end $$;
