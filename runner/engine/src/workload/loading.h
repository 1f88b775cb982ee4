// Decodes the programs of a workload in parallel: equal ones only once, without keeping encoded
// bytes in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

namespace chakrascope::engine {

// An .et file: its bytes if they are in memory already, else its path.
struct ProgramSource {
    std::string name;  // name for error messages; the path of a file
    std::string_view bytes;
    bool is_file = false;
};

// Decode `sources` on all cores. `wait` is called about ten times a second meanwhile; its
// exceptions end the work. If several sources cannot be decoded, the first one's error is raised.
std::vector<std::shared_ptr<const Program>> decode_programs(const std::vector<ProgramSource>& sources,
                                                            const std::function<void()>& wait);

}  // namespace chakrascope::engine
