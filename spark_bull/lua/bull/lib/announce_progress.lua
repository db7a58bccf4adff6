-- @include bull/lib: json_text

local function announce_progress(_, arg)
  local job_id = json_text(arg.job_id)
  redis.call('PUBLISH', arg.base .. 'progress', '{"jobId":' .. job_id .. ',"progress":' .. arg.progress .. '}')
end
