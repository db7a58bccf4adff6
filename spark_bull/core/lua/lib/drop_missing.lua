-- Removes jobs that were deleted while they ran from the set `mine`, and adds them to `lost`: writing an outcome would
-- create a hash with nothing else.
local function drop_missing(base, ids, mine, lost)
  local call, present, keys = redis.call, {}, {}
  for i = 1, #ids do
    if mine[ids[i]] then
      present[#present + 1], keys[#keys + 1] = ids[i], base .. ids[i]
    end
  end
  if #keys == 0 or call('EXISTS', unpack(keys)) == #keys then
    return
  end
  for i = 1, #keys do
    if call('EXISTS', keys[i]) == 0 then
      mine[present[i]] = nil
      lost[#lost + 1] = {present[i], 'missing'}
    end
  end
end
