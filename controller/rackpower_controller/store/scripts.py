"""Lua scripts: each is one step that nobody can come between.

KEYS share one hash tag, so that they also live together on a cluster. A script answers a list whose
first item is a word: `ok`, `fenced`, `busy`, `stale`.
"""

from __future__ import annotations

TAKE_TERM = """
-- KEYS: term, leader   ARGV: instance, above, ttl ms, leader address, unix s, steal ('1': nobody else can live)
local leader = redis.call('HGET', KEYS[2], 'instance')
if leader and leader ~= ARGV[1] and ARGV[6] ~= '1' then
  return {'busy', leader, redis.call('HGET', KEYS[2], 'address') or '', tostring(redis.call('PTTL', KEYS[2]))}
end
local number = tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
if tonumber(ARGV[2]) > number then number = tonumber(ARGV[2]) end
number = number + 1
local text = string.format('%.0f', number)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'number', text, 'instance', ARGV[1], 'unix_s', ARGV[5], 'record', '0')
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'instance', ARGV[1], 'address', ARGV[4], 'term', text)
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'ok', text}
"""

_FENCE = """
local newest = redis.call('HMGET', KEYS[1], 'number', 'instance', 'record')
if newest[1] ~= ARGV[1] or newest[2] ~= ARGV[2] then
  return {'fenced', newest[1] or '0', newest[2] or ''}
end
"""

KEEP_LEAD = (
    """-- KEYS: term, leader   ARGV: number, instance, ttl ms, leader address"""
    + _FENCE
    + """
local leader = redis.call('HGET', KEYS[2], 'instance')
if leader and leader ~= ARGV[2] then return {'fenced', newest[1], leader} end
redis.call('HSET', KEYS[2], 'instance', ARGV[2], 'address', ARGV[4], 'term', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'ok'}
"""
)

GIVE_UP_LEAD = """
-- KEYS: leader   ARGV: instance
if redis.call('HGET', KEYS[1], 'instance') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return {'ok'}
"""

RECORD_EXPOSURES = (
    """-- KEYS: term, exposures, former   ARGV: number, instance, record number, former, then gpu, value, …"""
    + _FENCE
    + """
if tonumber(newest[3] or '0') >= tonumber(ARGV[3]) then return {'stale', newest[3]} end
redis.call('HSET', KEYS[1], 'record', ARGV[3])
redis.call('SET', KEYS[3], ARGV[4])
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return {'ok'}
"""
)

ADD_POLICY = """
-- KEYS: policies   ARGV: most kept, revision, author, unix s, files
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if last[1] then
  local fields = last[1][2]
  for i = 1, #fields, 2 do
    if fields[i] == 'revision' and fields[i + 1] == ARGV[2] then return {'same'} end
  end
end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*',
  'revision', ARGV[2], 'author', ARGV[3], 'unix_s', ARGV[4], 'files', ARGV[5])
return {'ok'}
"""
