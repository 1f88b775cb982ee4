#include "reporter.h"

#include <chrono>
#include <utility>

namespace chakrascope::emulation {
namespace {

constexpr std::chrono::milliseconds kInterval(20);

}  // namespace

Reporter::Reporter(Tell tell) : tell_(std::move(tell)), thread_([this] { run(); }) {}

Reporter::~Reporter() { end(); }

// Store the progress without waiting for the thread of the reporter, which may be waiting for a
// processor. The answer of the receiver is returned by a later call.
bool Reporter::note(const Progress& progress) {
    if (const std::unique_lock guard(lock_, std::try_to_lock); guard) progress_ = progress;
    return !stopped_.load(std::memory_order_relaxed);
}

void Reporter::finish() {
    end();
    if (error_ != nullptr) std::rethrow_exception(error_);
}

void Reporter::run() {
    std::unique_lock guard(lock_);
    while (!wake_.wait_for(guard, kInterval, [this] { return over_; })) {
        const Progress progress = progress_;
        guard.unlock();
        try {
            if (!tell_(progress)) stopped_ = true;
        } catch (...) {
            error_ = std::current_exception();
            stopped_ = true;
        }
        if (stopped_) return;
        guard.lock();
    }
}

void Reporter::end() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard guard(lock_);
        over_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

}  // namespace chakrascope::emulation
