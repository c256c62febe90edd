"""Scripts that run inside Valkey: each is atomic there, and first checks the leader's epoch.

A space consists of a hash of values, a set of names in order, a set of keys by expiry, and the total of
counted bytes. `KEYS` are these four, then the fence and the set of spaces.
"""

from __future__ import annotations

from typing import Final

_BEGIN: Final = """
local fence = tonumber(redis.call('GET', KEYS[5]) or '0')
local epoch = tonumber(ARGV[1])
if fence > epoch then return {'fenced', tostring(fence)} end
if fence < epoch then redis.call('SET', KEYS[5], ARGV[1]) end
local now = ARGV[2]
local function cost(key, value) return 64 + #key + #value end
local function remove(key)
  local value = redis.call('HGET', KEYS[1], key)
  redis.call('ZREM', KEYS[3], key)
  if not value then return false end
  redis.call('HDEL', KEYS[1], key)
  redis.call('ZREM', KEYS[2], key)
  redis.call('DECRBY', KEYS[4], cost(key, value))
  return true
end
local function sweep()
  local dead = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 1000)
  for _, key in ipairs(dead) do remove(key) end
  return #dead
end
local function current(key)
  local due = redis.call('ZSCORE', KEYS[3], key)
  if due and tonumber(due) <= tonumber(now) then remove(key) end
  return redis.call('HGET', KEYS[1], key)
end
"""

WRITE: Final = (
    _BEGIN
    + """
local key, has, value, expiry, unless, condition, expected, quota, space, keep =
  ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]
local there = current(key)
if unless == '1' and there then return {'no'} end
if condition == 'absent' and there then return {'no'} end
if condition == 'equal' and there ~= expected then return {'no'} end
if has == '0' then
  if remove(key) then return {'yes'} end
  return {'no'}
end
local grows = cost(key, value) - (there and cost(key, there) or 0)
local function beyond() return tonumber(redis.call('GET', KEYS[4]) or '0') + grows > quota end
while grows > 0 and beyond() do
  if sweep() == 0 then return {'quota'} end
end
redis.call('SADD', KEYS[6], space)
redis.call('HSET', KEYS[1], key, value)
redis.call('ZADD', KEYS[2], 0, key)
redis.call('INCRBY', KEYS[4], grows)
if keep == '1' and there then return {'yes'} end
if expiry == '' then
  redis.call('ZREM', KEYS[3], key)
else
  redis.call('ZADD', KEYS[3], expiry, key)
end
return {'yes'}
"""
)

EXPIRE: Final = (
    _BEGIN
    + """
if not current(ARGV[3]) then return {'no'} end
if ARGV[4] == '' then
  redis.call('ZREM', KEYS[3], ARGV[3])
else
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[3])
end
return {'yes'}
"""
)

SWEEP: Final = _BEGIN + "return {'yes', tostring(sweep())}"

DROP: Final = (
    _BEGIN
    + """
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('SREM', KEYS[6], ARGV[3])
return {'yes'}
"""
)

COPY: Final = (
    _BEGIN
    + """
for i = 1, 4 do
  redis.call('DEL', KEYS[6 + i])
  redis.call('COPY', KEYS[i], KEYS[6 + i])
end
if redis.call('EXISTS', KEYS[7]) == 1 then redis.call('SADD', KEYS[6], ARGV[3]) end
return {'yes'}
"""
)

RAISE: Final = _BEGIN + "return {'yes'}"
