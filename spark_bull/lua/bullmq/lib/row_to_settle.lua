-- @include lib/job_row
-- @include lib/settle_alone

-- Fields of a job that is to be settled. Nil when its key is no hash any more: then it is set aside, and noted as lost.
local function row_to_settle(key, base, job_id, lost, ...)
  local row, kind = job_row(base .. job_id, ...)
  if not row then
    lose_damaged(key, job_id, kind, lost)
  end
  return row
end
