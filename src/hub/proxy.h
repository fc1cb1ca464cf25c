// Which proxy stands between this machine and a host, by the variables that other programs read:
// https_proxy or http_proxy, all_proxy, no_proxy, in small letters or large. Thread-safe as long as
// the environment does not change.
#pragma once

#include <optional>

#include "base/result.h"
#include "hub/url.h"

namespace kvrm {

// nullopt: none. Errors name the variable: a proxy that is no http:// address.
Result<std::optional<Url>> ProxyFor(const Url& url);

}  // namespace kvrm
