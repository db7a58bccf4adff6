-- @include lib: set_aside

local function lose_damaged(key, job_id, kind, lost)
  set_aside(key, job_id, kind)
  lost[#lost + 1] = {job_id, 'damaged'}
end
