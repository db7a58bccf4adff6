-- Takes jobs that were deleted while they ran out of the set `mine`, and notes them as lost: written to, they would come
-- back as ghosts with nothing but an outcome.
local function drop_missing(base, ids, mine, lost)
  local call, held, keys = redis.call, {}, {}
  for i = 1, #ids do
    if mine[ids[i]] then
      held[#held + 1], keys[#keys + 1] = ids[i], base .. ids[i]
    end
  end
  if #keys == 0 or call('EXISTS', unpack(keys)) == #keys then
    return
  end
  for i = 1, #keys do
    if call('EXISTS', keys[i]) == 0 then
      mine[held[i]] = nil
      lost[#lost + 1] = {held[i], 'missing'}
    end
  end
end
