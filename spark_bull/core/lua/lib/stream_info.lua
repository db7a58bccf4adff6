-- What Redis says about a stream, by name; nil without a stream.
local function stream_info(stream)
  if redis.call('EXISTS', stream) == 0 then
    return nil
  end
  local flat, info = redis.call('XINFO', 'STREAM', stream), {}
  for i = 1, #flat, 2 do
    info[flat[i]] = flat[i + 1]
  end
  return info
end
