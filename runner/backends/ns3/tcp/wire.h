// SPDX-License-Identifier: GPL-2.0-only
// Sizes of packets, and addresses. Each node has one address for all its devices. The first address is
// 10.0.0.1.
#pragma once

#include <ns3/ipv4-address.h>

#include <cstdint>

namespace chakrascope::tcp {

constexpr std::uint32_t kFirstAddress = 0x0a000001;
constexpr std::uint32_t kMask = 0xff000000;
constexpr std::int32_t kMostNodes = 65'000;
constexpr std::uint32_t kPppBytes = 2;  // header of ns-3's point-to-point devices
constexpr std::uint32_t kIpBytes = 20;
constexpr std::uint8_t kTcp = 6;  // IP protocol number

inline ns3::Ipv4Address address_of(std::int32_t node) {
    return ns3::Ipv4Address(kFirstAddress + static_cast<std::uint32_t>(node));
}

inline std::int32_t node_of(ns3::Ipv4Address address) {
    return static_cast<std::int32_t>(address.Get() - kFirstAddress);
}

}  // namespace chakrascope::tcp
