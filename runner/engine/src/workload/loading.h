// Decodes the programs of a workload in parallel. Equal programs are decoded only once, and encoded
// bytes are not kept in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

namespace chakrascope::engine {

// The source of a program: the path of an .et file, or the bytes of the file if they are already in
// memory.
struct ProgramSource {
    std::string name;  // name for error messages; the path of a file
    std::string_view bytes;
    bool is_file = false;
};

// Decode `sources` on all cores. `wait` is called about ten times a second. An exception of `wait` ends
// the work. If several sources cannot be decoded, the error of the first such source is raised.
std::vector<std::shared_ptr<const Program>> decode_programs(const std::vector<ProgramSource>& sources,
                                                            const std::function<void()>& wait);

}  // namespace chakrascope::engine
