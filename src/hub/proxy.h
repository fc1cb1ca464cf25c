// Which proxy stands between this machine and a host, by the variables that other programs read:
// https_proxy or http_proxy, all_proxy, no_proxy, in small letters or large. Thread-safe as long as
// the environment does not change.
#pragma once

#include <optional>

#include <string>

#include "base/result.h"
#include "hub/url.h"

namespace kvrm {

struct Proxy {
  Url url;
  std::string authorization;  // the value of Proxy-Authorization; empty: none is sent
};

// nullopt: none. [http://][USER[:PASSWORD]@]HOST[:PORT], USER and PASSWORD percent-encoded. Errors
// name the variable and never show what stands in it before the '@': a proxy that is no http://
// address, a percent sign that encodes nothing.
Result<std::optional<Proxy>> ProxyFor(const Url& url);

}  // namespace kvrm
