-- Sends the requests of a file repeatedly, in order. Each line has METHOD, PATH, KEY, HEADER and BODY, separated by tabs.
-- A second argument is the pause before each request, in milliseconds. The number 1000000 in a request is replaced by
-- another one of seven digits each time, after the third argument.
-- Prints the result of wrk in one line at the end.
local requests, numbered, count, index = {}, {}, 0, 0
local NUMBER, last = "1000000", 0

function init(arguments)
  for line in io.lines(arguments[1]) do
    local method, path, key, header, body = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    local headers = {["Host"] = "127.0.0.1", ["X-API-Key"] = key}
    if body ~= "" then headers["Content-Type"] = "application/json" end
    local name, value = header:match("^([^:]+): (.*)$")
    if name then headers[name] = value end
    count = count + 1
    requests[count] = wrk.format(method, path, headers, body ~= "" and body or nil)
    numbered[count] = requests[count]:find(NUMBER, 1, true) ~= nil
  end
  last = tonumber(arguments[3])
  local pause = tonumber(arguments[2])
  if pause > 0 then delay = function() return pause end end
end

function request()
  index = index % count + 1
  if not numbered[index] then return requests[index] end
  last = last + 1
  return (requests[index]:gsub(NUMBER, tostring(1000000 + last % 9000000)))
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    "COUNTED requests=%d microseconds=%d bytes=%d p50=%d p99=%d failed=%d broken=%d\n",
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
