-- Acts once for each call of a sender: `receipt` keeps the last answer, so a call sent again after
-- a lost reply gets the same answer and changes nothing. `act` returns the answer, and after it true when it need not be
-- kept because acting again would do.
local function once(receipt, call_id, ttl_ms, act)
  local last = redis.call('GET', receipt)
  if last then
    local kept = cmsgpack.unpack(last)
    if kept[1] == call_id then
      return kept[2]
    end
  end
  local answer, unchanged = act()
  if unchanged then
    return answer
  end
  redis.call('SET', receipt, cmsgpack.pack({call_id, answer}), 'PX', ttl_ms)
  return answer
end
