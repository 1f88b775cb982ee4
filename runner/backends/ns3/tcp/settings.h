// SPDX-License-Identifier: GPL-2.0-only
// What the driver is told before it builds the network, by the names of its commands.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace chakrascope::tcp {

// Whole numbers and words under names; a name that was never set has no default here, so that every default
// is the caller's, who reports it.
class Settings {
  public:
    void set(const std::string& name, const std::string& value) { values_[name] = value; }
    bool has(const std::string& name) const;
    std::uint64_t number(const std::string& name) const;
    std::string word(const std::string& name) const;

  private:
    std::map<std::string, std::string> values_;
};

}  // namespace chakrascope::tcp
