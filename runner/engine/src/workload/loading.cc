#include "loading.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "../errors.h"

namespace chakrascope::engine {
namespace {

constexpr std::chrono::milliseconds kWait{100};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::string bytes;
    if (file) {
        const auto size = file.tellg();
        if (size > 0) bytes.resize(static_cast<std::size_t>(size));
        file.seekg(0);
        if (size > 0) file.read(bytes.data(), size);
    }
    if (!file) {
        throw WorkloadFormatError(path + " cannot be read; check that the file exists and may be read.");
    }
    return bytes;
}

class Decoding {
  public:
    explicit Decoding(const std::vector<ProgramSource>& sources)
        : sources_(sources),
          programs_(sources.size()),
          errors_(sources.size()),
          same_as_(sources.size(), -1) {}

    void run(const std::function<void()>& wait) {
        const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
        const std::size_t wanted = std::min(cores, sources_.size());
        std::vector<std::thread> threads;
        threads.reserve(wanted);
        working_ = wanted;
        try {
            while (threads.size() < wanted) threads.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            // If no further thread can be created, the threads that have started or the current thread
            // do the work.
            const std::lock_guard lock(mutex_);
            working_ -= wanted - threads.size();
        }
        if (threads.empty() && wanted > 0) {
            working_ = 1;
            work();
        }
        std::exception_ptr stopped;
        {
            std::unique_lock lock(mutex_);
            while (!ended_.wait_for(lock, kWait, [this] { return working_ == 0; })) {
                lock.unlock();
                try {
                    if (!stopped) wait();
                } catch (...) {
                    stopped = std::current_exception();
                    next_ = sources_.size();
                }
                lock.lock();
            }
        }
        for (std::thread& thread : threads) thread.join();
        if (stopped) std::rethrow_exception(stopped);
        for (const std::exception_ptr& error : errors_)
            if (error) std::rethrow_exception(error);
    }

    std::vector<std::shared_ptr<const Program>> take() {
        for (std::size_t i = 0; i < sources_.size(); ++i)
            if (same_as_[i] >= 0) programs_[i] = programs_[static_cast<std::size_t>(same_as_[i])];
        return std::move(programs_);
    }

  private:
    void work() {
        for (std::size_t i = next_++; i < sources_.size(); i = next_++) {
            try {
                decode(i);
            } catch (...) {
                errors_[i] = std::current_exception();
            }
        }
        const std::lock_guard lock(mutex_);
        --working_;
        ended_.notify_one();
    }

    void decode(std::size_t i) {
        std::string storage;
        const std::string_view bytes = content(i, storage);
        const std::pair key{bytes.size(), std::hash<std::string_view>{}(bytes)};
        std::size_t first = i;
        {
            const std::lock_guard lock(mutex_);
            first = known_.try_emplace(key, i).first->second;
        }
        std::string other;
        if (first != i && content(first, other) == bytes) {
            same_as_[i] = static_cast<std::int64_t>(first);
        } else {
            programs_[i] = std::make_shared<const Program>(decode_program(bytes, sources_[i].name));
        }
    }

    // Return the bytes of a source. The bytes of a file are read into `storage`.
    std::string_view content(std::size_t i, std::string& storage) const {
        if (!sources_[i].is_file) return sources_[i].bytes;
        storage = read_file(sources_[i].name);
        return storage;
    }

    const std::vector<ProgramSource>& sources_;
    std::vector<std::shared_ptr<const Program>> programs_;
    std::vector<std::exception_ptr> errors_;
    std::vector<std::int64_t> same_as_;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t>
        known_;  // the first source with each size and hash
    std::atomic<std::size_t> next_ = 0;
    std::size_t working_ = 0;
    std::mutex mutex_;
    std::condition_variable ended_;
};

}  // namespace

std::vector<std::shared_ptr<const Program>> decode_programs(const std::vector<ProgramSource>& sources,
                                                            const std::function<void()>& wait) {
    Decoding decoding(sources);
    decoding.run(wait);
    return decoding.take();
}

}  // namespace chakrascope::engine
