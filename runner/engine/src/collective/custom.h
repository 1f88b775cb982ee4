// Cache of custom collective algorithms; each file is read only once.
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
    bool ours = false;  // a collective program of Chakrascope: durations in ns, separate tags
    std::unordered_map<std::uint64_t, Node> nodes;
    std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> children;
    std::unordered_map<std::uint64_t, std::uint32_t> waiting;  // number of parents that have not ended
    std::unordered_set<std::uint64_t> ready;
};

class CustomAlgorithms {
  public:
    explicit CustomAlgorithms(const Config& config) : config_(config) {}

    // Return the algorithm of a position, from the files with this prefix or from the collective
    // program of this name. Raises ConfigError, WorkloadFormatError or DependencyError.
    std::shared_ptr<const CustomProgram> get(const std::string& prefix, std::int32_t position);

    // Raise the same errors as `get`, and WorkloadFormatError if the algorithm expects more members
    // than `ranks`.
    void require_works(const Phase& phase, std::int64_t ranks);

  private:
    const Config& config_;
    std::unordered_map<std::string, std::shared_ptr<const CustomProgram>> programs_;
};

}  // namespace chakrascope::engine
