-- @include lib: job_row lose_damaged

-- The fields atm, parentKey and deid of each completed job of the set `mine`, false for another one. Jobs that were
-- deleted while they ran leave `mine`, those whose key is no longer a hash are set aside; both are added to `lost`.
local function rows_to_settle(key, jobs, mine, lost)
  local ids, keys, rows = jobs.ids, jobs.keys, {}
  for i = 1, #ids do
    local id = ids[i]
    rows[i] = false
    if mine[id] then
      -- Each claim sets the last field: nearly all jobs that exist have it.
      local row, kind = job_row(keys[i], 'atm', 'parentKey', 'deid', 'processedOn')
      if row and not row[4] and redis.call('EXISTS', keys[i]) == 0 then
        mine[id] = nil
        lost[#lost + 1] = {id, 'missing'}
      elseif row then
        rows[i] = row
      else
        lose_damaged(key, id, kind, lost)
      end
    end
  end
  return rows
end
