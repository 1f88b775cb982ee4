// Runs of programs on GPUs, and the kernels of runs and computations.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "machine.h"
#include "program.h"

namespace chakrascope::gpu {

class Worker;

// The counter of a semaphore, a flag or a barrier. A change of the counter wakes the workers that wait for
// it.
struct Counter {
    std::int64_t value = 0;
    std::vector<Worker*> waiting;
};

struct Run {
    // With `in_step`, only the first copy runs, and changes of its counters stand for those of all copies.
    Run(std::shared_ptr<const Program> runs, std::vector<std::int32_t> on, bool in_step = false)
        : program(std::move(runs)), members(std::move(on)) {
        const std::size_t count = in_step ? program->ranks.size() : program->size();
        for (std::int32_t member = 0; member < static_cast<std::int32_t>(count); ++member) {
            const auto& values = program->counters[program->pattern(member)];
            auto& own = counters.emplace_back(values.size());
            for (std::size_t number = 0; number < values.size(); ++number) own[number].value = values[number];
        }
        for (const auto& group : program->groups) {
            auto& gpus = groups.emplace_back();
            for (const std::int32_t member : group) gpus.push_back(gpu(member));
        }
    }
    std::int32_t gpu(std::int32_t member) const { return members[static_cast<std::size_t>(member)]; }
    Counter& counter(std::int32_t member, std::int32_t number) {
        return counters[static_cast<std::size_t>(member) % counters.size()][static_cast<std::size_t>(number)];
    }

    const std::shared_ptr<const Program> program;
    const std::vector<std::int32_t> members;  // GPU of each member
    std::vector<std::vector<Counter>> counters;
    std::vector<std::vector<std::int32_t>> groups;  // GPUs of each switch group
};

// A kernel: one member's part of a run.
struct Kernel {
    std::uint64_t id = 0;
    std::shared_ptr<Run> run;
    std::int32_t member = 0;
    std::uint32_t placed = 0, left = 0;  // number of workgroups

    const std::vector<Workgroup>& workgroups() const {
        return run->program->ranks[run->program->pattern(member)];
    }
};

// The kernel of a computation: rounds of identical workgroups.
struct ComputeKernel {
    std::uint64_t id = 0;
    std::int32_t gpu = 0;
    Fs duration = 0;          // if no other kernel runs on the GPU
    double memory_share = 0;  // share of the memory bandwidth that the kernel needs with all units active
    std::uint32_t begun = 0, left = 0, all = 0;
};

}  // namespace chakrascope::gpu
