// Decoding the programs of a workload: each on a thread of its own, equal ones once, none kept encoded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

namespace chakrascope::engine {

// An .et file: its bytes where they are in memory already, else its path.
struct ProgramSource {
    std::string name;  // stands in error messages; the path of a file
    std::string_view bytes;
    bool is_file = false;
};

// Decode `sources` on all cores. `wait` is called about ten times a second meanwhile; what it throws ends the
// work. Of several that cannot be decoded, the error is that of the first.
std::vector<std::shared_ptr<const Program>> decode_programs(const std::vector<ProgramSource>& sources,
                                                            const std::function<void()>& wait);

}  // namespace chakrascope::engine
