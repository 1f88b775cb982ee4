// The files of custom collective algorithms, each read once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "../config.h"
#include "../workload/program.h"
#include "stream.h"

namespace chakrascope::engine {

struct CustomProgram {
    std::string name;
    bool ours = false;  // a program's messages: durations are in ns, tags its own
    std::unordered_map<std::uint64_t, Node> nodes;
    std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> children;
    std::unordered_map<std::uint64_t, std::uint32_t> waiting;  // parents not yet done
    std::unordered_set<std::uint64_t> ready;
};

class CustomAlgorithms {
  public:
    explicit CustomAlgorithms(const Config& config) : config_(config) {}

    // Return the algorithm of a position, of files or a collective program of that name; raises ConfigError,
    // WorkloadFormatError or DependencyError.
    std::shared_ptr<const CustomProgram> get(const std::string& prefix, std::int32_t position);

    // Raise what `get` raises, and WorkloadFormatError where the algorithm is for more members than these.
    void require_works(const Phase& phase, std::int64_t ranks);

  private:
    const Config& config_;
    std::unordered_map<std::string, std::shared_ptr<const CustomProgram>> programs_;
};

}  // namespace chakrascope::engine
