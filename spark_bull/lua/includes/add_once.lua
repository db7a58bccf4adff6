-- @include time_ms

-- Adds rows of a chunk unless this very call was answered before: `receipt` keeps the last answer
-- of a sender, so a call sent again after a lost reply gets the same answer and changes nothing.
-- `add(chunk, from, now)` adds rows and returns {next, added, duplicates, ids}.
local function add_once(receipt, arg, add)
  local call_id = arg.number .. ':' .. arg.from
  local last = redis.call('GET', receipt)
  if last then
    local kept = cmsgpack.unpack(last)
    if kept[1] == call_id then
      return kept[2]
    end
  end
  local chunk = cmsgpack.unpack(arg.chunk)
  local result = add(chunk, tonumber(arg.from), time_ms())
  local ids = arg.want_ids == '1' and result.ids or {}
  local answer = {result.next, result.added, result.duplicates, ids}
  redis.call('SET', receipt, cmsgpack.pack({call_id, answer}), 'PX', arg.ttl_ms)
  return answer
end
