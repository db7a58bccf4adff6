-- Acts once for each call of a sender: `receipt` keeps the last answer, so a call sent again after
-- a lost reply gets the same answer and changes nothing.
local function once(receipt, call_id, ttl_ms, act)
  local last = redis.call('GET', receipt)
  if last then
    local kept = cmsgpack.unpack(last)
    if kept[1] == call_id then
      return kept[2]
    end
  end
  local answer = act()
  redis.call('SET', receipt, cmsgpack.pack({call_id, answer}), 'PX', ttl_ms)
  return answer
end
