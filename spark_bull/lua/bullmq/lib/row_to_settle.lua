-- @include lib/job_row
-- @include lib/settle_alone

-- Fields of a job to settle. Nil when its key is no longer a hash: then it is set aside, and added to `lost`.
local function row_to_settle(key, base, job_id, lost, ...)
  local row, kind = job_row(base .. job_id, ...)
  if not row then
    lose_damaged(key, job_id, kind, lost)
  end
  return row
end
