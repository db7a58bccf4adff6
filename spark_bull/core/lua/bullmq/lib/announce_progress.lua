-- @include bullmq/lib: emit_trimmed

local function announce_progress(key, arg)
  emit_trimmed(key, arg, 'progress', 'jobId', arg.job_id, 'data', arg.progress)
end
