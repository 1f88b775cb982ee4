// Tests the transports of emulated ranks and the progress reporter alone. `make sanitize` builds this
// program with each of the sanitizers in seconds. Exits with 1 if a test fails.
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "emulation/clock.h"
#include "emulation/reporter.h"
#include "emulation/tcp.h"
#include "emulation/threaded.h"

namespace {

using namespace chakrascope;
using emulation::Event;

constexpr std::uint64_t kMessages = 2000;
constexpr int kThreads = 3;

bool expect(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "not so: %s\n", what);
    return holds;
}

// A reporter only reports consistent states, and stops when its receiver returns false.
bool reports() {
    bool whole = true;
    int told = 0;
    emulation::Reporter reporter([&](const emulation::Progress& progress) {
        whole = whole && progress.sent == progress.received &&
                static_cast<std::uint64_t>(progress.now_ns) == progress.sent;
        return ++told < 3;
    });
    std::uint64_t turn = 0;
    while (reporter.note({static_cast<std::int64_t>(turn), false, false, turn, turn})) ++turn;
    reporter.finish();
    return expect(whole && told == 3, "a reporter tells whole states until it is stopped");
}

bool raises() {
    emulation::Reporter reporter(
        [](const emulation::Progress&) -> bool { throw std::runtime_error("told"); });
    while (reporter.note({})) {
    }
    try {
        reporter.finish();
    } catch (const std::runtime_error&) {
        return true;
    }
    return expect(false, "a reporter raises what is raised while it tells");
}

bool carries() {
    std::vector<std::thread> threads;
    emulation::ThreadedTransport transport([](std::int32_t, const emulation::Header&) {});
    for (std::uint64_t message = 0; message < kThreads * kMessages; ++message) transport.post(1, {});
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&transport] {
            for (std::uint64_t message = 0; message < kMessages; ++message)
                transport.happened({Event::Kind::Sent, 1, 0, {}, 0, 0});
        });
    }
    std::vector<Event> events;
    std::size_t found = 0;
    while (!transport.idle()) {
        transport.progress({emulation::monotonic_ns() + 1'000'000'000}, events);
        found += events.size();
        events.clear();
    }
    for (std::thread& thread : threads) thread.join();
    return expect(found == kThreads * kMessages, "every event of every thread is told once");
}

// Two ranks, each a thread, exchange messages that are larger than every buffer, and empty messages.
bool exchanges() {
    constexpr std::array<std::uint64_t, 6> kSizes{0, 1, 47, 4096, 262'145, 3'000'000};
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return expect(false, "there is a socket pair");
    std::array<std::uint64_t, 2> came{}, sent{};
    std::array<std::thread, 2> ranks;
    std::array<std::unique_ptr<emulation::TcpTransport>, 2> transports;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        using Connection = emulation::TcpTransport::Connection;
        const std::vector<Connection> connections{{ends[rank], 1 - rank, 0}};
        transports[rank] = std::make_unique<emulation::TcpTransport>(connections);
    }
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        ranks[rank] = std::thread([&, rank] {
            emulation::TcpTransport& transport = *transports[rank];
            for (std::uint64_t number = 0; number < kSizes.size(); ++number)
                transport.post(1 - rank, {kSizes[number], 0, number, rank});
            std::vector<Event> events;
            const emulation::Time latest = emulation::monotonic_ns() + 60'000'000'000;
            while ((came[rank] < kSizes.size() || !transport.idle()) && emulation::monotonic_ns() < latest) {
                transport.progress({emulation::monotonic_ns() + 100'000'000, false}, events);
                for (const Event& event : events) ++(event.kind == Event::Kind::Came ? came : sent)[rank];
                events.clear();
            }
        });
    }
    for (std::thread& rank : ranks) rank.join();
    const std::array<std::uint64_t, 2> all{kSizes.size(), kSizes.size()};
    return expect(came == all && sent == all, "every message goes and comes once");
}

}  // namespace

int main() { return reports() && raises() && carries() && exchanges() ? 0 : 1; }
