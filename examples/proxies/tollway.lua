-- Asks Tollway about each request, through "listen tollway". No answer within 100 ms: the request passes.
local gate = "http://127.0.0.1:8079/v1/gate?limit=RequestsPerIPAddress&deny_status=429&id="

core.register_action("tollway", { "http-req" }, function(txn)
    local answer = core.httpclient():get { url = gate .. txn.f:src(), timeout = 200 }
    if not answer then return end
    local function first(name) return answer.headers[name] and answer.headers[name][0] end
    if first("ratelimit") then txn:set_var("txn.ratelimit", first("ratelimit")) end
    if answer.status == 429 then
        txn:set_var("txn.denied", true)
        txn:set_var("txn.retry_after", first("retry-after"))
    end
end)
