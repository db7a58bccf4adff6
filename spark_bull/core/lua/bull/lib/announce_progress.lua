-- @include bull/lib: json_text publish

local function announce_progress(_, arg)
  local job_id = json_text(arg.job_id)
  publish(arg, 'progress', arg.base .. 'progress', '{"jobId":' .. job_id .. ',"progress":' .. arg.progress .. '}')
end
