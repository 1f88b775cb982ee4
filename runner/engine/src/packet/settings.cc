#include "settings.h"

#include <algorithm>

namespace chakrascope::packet {

std::uint32_t Settings::telemetry_bytes() const {
    switch (control) {
        case Control::Hpcc:
            return 42;
        case Control::Timely:
            return 8;
        case Control::HpccPint:
            return 2;
        default:
            return 0;
    }
}

bool Settings::controlled() const {
    return std::find(kControls.begin(), kControls.end(), control) != kControls.end();
}

Ticks Settings::transmission(std::uint64_t bytes, std::uint64_t bits_per_second) const {
    const auto wide = static_cast<unsigned __int128>(bytes) * 8 * 1'000'000'000'000ull;
    const auto step =
        static_cast<unsigned __int128>(bits_per_second) * static_cast<std::uint64_t>(time_step());
    const auto sum = wide + step / 2;
    constexpr std::uint64_t largest = ~0ull;
    // 128-bit division is slow and rarely needed.
    if (sum <= largest && step <= largest)
        return static_cast<Ticks>(static_cast<std::uint64_t>(sum) / static_cast<std::uint64_t>(step)) *
               time_step();
    return static_cast<Ticks>(sum / step) * time_step();
}

}  // namespace chakrascope::packet
