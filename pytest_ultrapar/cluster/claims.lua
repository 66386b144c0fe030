-- Who runs which case of a run that several hosts share. `claims.py` has the same as a model.
--
-- Cases have numbers, from 0, and those of one model stand together. A case is not claimed yet, or
-- claimed by a host, or done. A cursor for each model says up to where its cases were claimed once;
-- those that came back since are `back`. So nothing here is as large as the run but one bit a case.
--
-- KEYS  1 run (hash)    what the hosts agreed on, and counts
--       2 hosts (hash)  number -> JSON of what people are told of a host
--       3 seen (zset)   number -> when it was last heard of, ms
--       4 open (hash)   number -> its claimed cases whose episodes have not ended
--       5 given (hash)  number -> JSON of its last call's number and what that gave
--       6 cursors (hash) model -> first case never claimed
--       7 back (zset)   case -> case
--       8 claims (zset) case -> number of the host
--       9 failed (zset) case -> case: done, without an answer
--      10 done (bitmap)
-- ARGV  1 JSON of the call (`Call` in claims.py)
local RUN, HOSTS, SEEN, OPEN, GIVEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CURSORS, BACK, CLAIMS, FAILED, DONE = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local call = cjson.decode(ARGV[1])
-- Redis before 7 would else refuse to write after TIME.
if redis.replicate_commands then redis.replicate_commands() end
local time = redis.call('TIME')
local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)

local function number(key, field) return tonumber(redis.call('HGET', key, field) or '0') end
local function add(field, n) if n ~= 0 then redis.call('HINCRBY', RUN, field, n) end end

local function set_open(host, n)
  local before = number(OPEN, host)
  redis.call('HSET', OPEN, host, n)
  add('n_open', n - before)
end

-- A host is gone: its cases are anybody's again.
local function release(host)
  local cases = redis.call('ZRANGEBYSCORE', CLAIMS, host, host)
  for _, case in ipairs(cases) do redis.call('ZADD', BACK, case, case) end
  redis.call('ZREMRANGEBYSCORE', CLAIMS, host, host)
  set_open(host, 0)
  redis.call('HDEL', OPEN, host)
  redis.call('HDEL', HOSTS, host)
  redis.call('HDEL', GIVEN, host)
  redis.call('ZREM', SEEN, host)
end

local function forget_silent(silent_ms)
  for _, host in ipairs(redis.call('ZRANGEBYSCORE', SEEN, '-inf', now_ms - silent_ms)) do
    release(host)
  end
end

local function finish(cases, has_failed)
  for _, case in ipairs(cases) do
    redis.call('ZREM', CLAIMS, case)
    redis.call('ZREM', BACK, case)
    if redis.call('SETBIT', DONE, case, 1) == 0 then
      add('n_done', 1)
      if has_failed then redis.call('ZADD', FAILED, case, case) end
    elseif not has_failed then
      -- Asked twice, and answered once.
      redis.call('ZREM', FAILED, case)
    end
  end
end

-- Claims that a host had before it was taken for dead, or before the server forgot them.
local function take_again(host, cases)
  local n = 0
  for _, case in ipairs(cases) do
    if redis.call('GETBIT', DONE, case) == 0 and not redis.call('ZSCORE', CLAIMS, case) then
      redis.call('ZREM', BACK, case)
      redis.call('ZADD', CLAIMS, host, case)
      n = n + 1
    end
  end
  return n
end

local models = nil
local function ranges()
  models = models or cjson.decode(redis.call('HGET', RUN, 'models'))
  return models
end

-- Up to n cases of a model, those that came back first. Cases that were done before the server
-- forgot its cursors, or taken again since, are passed over.
local function give(host, model, n, given)
  local first, last = ranges()[model + 1][1], ranges()[model + 1][2]
  for _, case in ipairs(redis.call('ZRANGEBYSCORE', BACK, first, '(' .. last, 'LIMIT', 0, n)) do
    redis.call('ZREM', BACK, case)
    redis.call('ZADD', CLAIMS, host, case)
    given[#given + 1] = tonumber(case)
    n = n - 1
  end
  local cursor = tonumber(redis.call('HGET', CURSORS, model) or first)
  local at = cursor
  -- A server is not to be kept by one call, however many were done before it forgot them.
  local stop = math.min(last, cursor + n + 10000)
  while n > 0 and at < stop do
    if redis.call('GETBIT', DONE, at) == 0 and not redis.call('ZSCORE', CLAIMS, at) then
      redis.call('ZADD', CLAIMS, host, at)
      given[#given + 1] = at
      n = n - 1
    end
    at = at + 1
  end
  if at > cursor then redis.call('HSET', CURSORS, model, at) end
end

local function unclaimed()
  local left = {}
  for model, range in ipairs(ranges()) do
    local cursor = tonumber(redis.call('HGET', CURSORS, model - 1) or range[1])
    left[model] = range[2] - cursor + redis.call('ZCOUNT', BACK, range[1], '(' .. range[2])
  end
  return left
end

-- Why nobody may have a case yet: a server that forgot the run first hears what hosts still have.
local function waits_ms()
  return math.max(0, number(RUN, 'opens_ms') - now_ms)
end

-- Whether an operator wants the host to begin nothing more.
local function is_drained(host)
  local text = redis.call('HGET', HOSTS, host)
  return text and redis.call('HEXISTS', RUN, 'drain:' .. cjson.decode(text).name) == 1
end

local function expire()
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, call.keep_ms) end
end

local function answer(host, given)
  local left = unclaimed()
  local n_left = 0
  for _, n in ipairs(left) do n_left = n_left + n end
  -- Whoever asks for limits wants to know how much may come.
  redis.call('HSET', RUN, 'unclaimed', cjson.encode(left))
  local n_open = number(RUN, 'n_open')
  local elected = redis.call('HGET', RUN, 'elected')
  if n_left == 0 and n_open == 0 and waits_ms() == 0 then
    if not elected then
      elected = tostring(host)
      redis.call('HSET', RUN, 'elected', elected)
    end
  elseif elected then
    redis.call('HDEL', RUN, 'elected')
    elected = false
  end
  return {
    'ok', tonumber(host), redis.call('ZCARD', SEEN), number(RUN, 'n_done'), redis.call('ZCARD', FAILED),
    n_open, elected == tostring(host) and 1 or 0, waits_ms(), left, given,
    is_drained(host) and 1 or 0,
  }
end

if call.op == 'reopen' then
  -- Cases that are done, and of which nobody has a result.
  local n = 0
  for _, case in ipairs(call.cases) do
    if redis.call('SETBIT', DONE, case, 0) == 1 then
      redis.call('ZREM', FAILED, case)
      redis.call('ZADD', BACK, case, case)
      n = n + 1
    end
  end
  add('n_done', -n)
  expire()
  return {'reopened', n}
end

if call.op == 'join' then
  forget_silent(call.silent_ms)
  local identity = redis.call('HGET', RUN, 'identity')
  if identity and identity ~= call.identity then return {'other', identity} end
  local hosts = redis.call('HGETALL', HOSTS)
  for i = 1, #hosts, 2 do
    local other = cjson.decode(hosts[i + 1])
    if other.name == call.name then
      if other.life ~= call.life then
        return {'same name', now_ms - tonumber(redis.call('ZSCORE', SEEN, hosts[i]) or now_ms)}
      end
      -- The answer to its call was lost.
      release(hosts[i])
    end
  end
  if not identity then
    -- What is left of a run of that name that was forgotten in part.
    redis.call('DEL', unpack(KEYS))
    redis.call('HSET', RUN, 'identity', call.identity, 'models', cjson.encode(call.models),
      'n_done', 0, 'n_open', 0, 'next', 0, 'began_ms', now_ms,
      -- Whoever comes back to a run that is not there was here before the server forgot it.
      'opens_ms', call.comes_back and now_ms + call.silent_ms or 0)
  end
  if not call.comes_back then redis.call('HDEL', RUN, 'drain:' .. call.name) end
  local host = redis.call('HINCRBY', RUN, 'next', 1)
  redis.call('ZADD', SEEN, now_ms, host)
  redis.call('HSET', HOSTS, host, cjson.encode({
    name = call.name, life = call.life, joined_ms = now_ms, said = call.said}))
  finish(call.done, false)
  finish(call.failed, true)
  local n_lost = #call.holding - take_again(host, call.holding)
  set_open(host, #call.holding)
  if not call.comes_back then
    -- Joining is also how what failed is asked again, where nobody is at it any more.
    local n_left = 0
    for _, n in ipairs(unclaimed()) do n_left = n_left + n end
    if n_left == 0 and number(RUN, 'n_open') == 0 and redis.call('ZCARD', SEEN) == 1 then
      for _, case in ipairs(redis.call('ZRANGE', FAILED, 0, -1)) do
        redis.call('SETBIT', DONE, case, 0)
        redis.call('ZADD', BACK, case, case)
        add('n_done', -1)
      end
      redis.call('DEL', FAILED)
    end
  end
  expire()
  local said = answer(host, {})
  said[#said + 1] = n_lost
  return said
end

local host = call.host
local hosted = redis.call('HGET', HOSTS, host)
if not hosted or cjson.decode(hosted).life ~= call.life then return {'unknown'} end
if call.op == 'leave' then
  finish(call.done, false)
  finish(call.failed, true)
  release(host)
  expire()
  return {'left'}
end
redis.call('ZADD', SEEN, now_ms, host)
forget_silent(call.silent_ms)
local last = redis.call('HGET', GIVEN, host)
last = last and cjson.decode(last) or {seq = -1}
if last.seq == call.seq then
  -- Its answer was lost, and all this was done.
  local given = {}
  for _, case in ipairs(last.given) do given[#given + 1] = case end
  return answer(host, given)
end
finish(call.done, false)
finish(call.failed, true)
local given = {}
if waits_ms() == 0 and not is_drained(host) then
  for _, want in ipairs(call.wants) do give(host, want[1], want[2], given) end
end
-- What is given now is open from now on: its host has not heard of it yet.
set_open(host, call.open + #given)
redis.call('HSET', GIVEN, host, cjson.encode({seq = call.seq, given = given}))
local told = cjson.decode(hosted)
told.said, told.n_done = call.said, (told.n_done or 0) + #call.done + #call.failed
redis.call('HSET', HOSTS, host, cjson.encode(told))
expire()
return answer(host, given)
