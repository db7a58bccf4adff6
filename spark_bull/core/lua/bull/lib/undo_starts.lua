-- @include lib: expire_again
-- @include {dialect}/lib: started_field(STARTED_FIELD)

-- Deletes the field that a claim has set from jobs without an attempt or a stall before: Bull does not count starts.
-- The counter of stalls is 1,000,000 at first if the job may run at most once.
local function undo_starts(key, base, ids, mine)
  for _, id in ipairs(ids) do
    if mine[id] then
      local row = redis.pcall('HMGET', base .. id, 'attemptsMade', 'stalledCounter')
      if not row.err and (tonumber(row[1]) or 0) == 0 and (tonumber(row[2]) or 0) % 1000000 == 0 then
        redis.call('HDEL', base .. id, STARTED_FIELD)
        expire_again(key, base .. id, id)
      end
    end
  end
end
