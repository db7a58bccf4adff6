-- @include lib: damaged(lose_damaged) jobs(job_row)

-- The number of fields of a new job (see claim_row), and those that its first claim by a worker with a name adds:
-- `processedOn`, `pb` and `ats`. A hash with at most this many fields cannot have any of the fields read below, so
-- HLEN alone tells.
local FIELDS_OF_STARTED_JOBS = 9

-- The fields atm, parentKey and deid of each of these jobs, true if it has none of them; false for one that is not
-- settled. Jobs that were deleted while they ran leave `mine`, those whose key is no longer a hash are set aside; both
-- are added to `lost`.
local function rows_to_settle(settling, jobs)
  local ids, keys, rows, mine = jobs.ids, jobs.keys, {}, settling.mine
  local count_of, is_named = redis.pcall, (settling.outcomes.worker or '') ~= ''
  for i = 1, #ids do
    local id = ids[i]
    if not mine[id] then
      rows[i] = false
    elseif is_named and count_of('HLEN', keys[i]) == FIELDS_OF_STARTED_JOBS then
      rows[i] = true
    else
      -- Each claim sets the last field: nearly all jobs that exist have it.
      local row, kind = job_row(keys[i], 'atm', 'parentKey', 'deid', 'processedOn')
      rows[i] = row or false
      if row and not row[4] and redis.call('EXISTS', keys[i]) == 0 then
        rows[i], mine[id] = false, nil
        settling.lost[#settling.lost + 1] = {id, 'missing'}
      elseif not row then
        lose_damaged(settling.key, id, kind, settling.lost)
      end
    end
  end
  return rows
end
